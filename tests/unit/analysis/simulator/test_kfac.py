"""Steps of distributed K-FAC against what can be worked out by hand."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import pytest

from testbed.analysis.simulator.model.constants import IDEAL
from testbed.analysis.simulator.model.kfac import SecondOrderPlan
from testbed.analysis.simulator.model.network import Network
from testbed.analysis.simulator.model.step_plan import StepPlan, plan
from testbed.analysis.simulator.model.traffic import traffic
from testbed.analysis.simulator.predict_command import answer, text
from testbed.analysis.simulator.timeline.steps import follow
from testbed.core.device.codecs.work import CodecTimes
from testbed.core.device.factored_layer import FactoredLayer
from testbed.core.device.profile import Collective, LayerTimes, Profile, WorkTimes
from testbed.core.errors import InputError
from testbed.core.spec.paths import WIRE_RATIO
from testbed.core.spec.run_spec import Part, RunSpec
from testbed.core.spec.topology import Topology
from topologies import lan, two_regions

RATE_BIT_S, RTT_S = 1e8, 0.05
SECOND_BYTE = 8 * WIRE_RATIO / RATE_BIT_S
FAST = "32 Gbit/s"
FACTOR_S, INVERSE_S, PRECONDITION_S = 0.01, 0.1, 0.003
FORWARD_S, BACKWARD_S, OTHER_S, OPTIMIZER_S = 0.2, 0.4, 0.002, 0.005
"""Of each layer the first two."""


def triangle(dimension: int) -> int:
    return dimension * (dimension + 1) // 2


def profile(*dimensions: int, parameters: int = 1000, inverse_s: float = INVERSE_S, buckets: int = 1) -> Profile:
    """Layers whose two factors are of these dimensions, in so many buckets alike."""
    names = [f"l{index}" for index in range(len(dimensions))]
    work = [
        WorkTimes(name=name.format(layer), kind="", size=0, seconds=seconds)
        for layer in names
        for name, seconds in (
            ("{}.a", FACTOR_S),
            ("{}.g", FACTOR_S),
            ("inverse of {}.a", inverse_s),
            ("inverse of {}.g", inverse_s),
            ("preconditioning of {}", PRECONDITION_S),
        )
    ]
    elements = parameters * len(names) // buckets
    sums = (Collective(kind="all_reduce", size_bytes=4 * elements),) * buckets
    return Profile(
        workload="w",
        compressor="c",
        batch_size=1,
        layers=tuple(
            LayerTimes(name=name, parameters=parameters, forward_s=FORWARD_S, backward_s=BACKWARD_S) for name in names
        ),
        forward_s=FORWARD_S * len(names),
        backward_s=BACKWARD_S * len(names),
        optimizer_s=OPTIMIZER_S,
        other_s=OTHER_S,
        codec=(CodecTimes(elements=elements, rounds=(("compress", 0.0), ("decompress", 0.0))),),
        buckets=(elements,) * buckets,
        collectives=(*sums, Collective(kind="all_reduce", size_bytes=1)),
        work=tuple(work),
        factored=tuple(FactoredLayer(name, d, d) for name, d in zip(names, dimensions, strict=True)),
    )


def spec(variant: str, topology: Topology, **params: Any) -> RunSpec:
    name = "dkfac" if variant == "d" else f"{variant}_kfac"
    return RunSpec(
        topology=topology,
        workload=Part("digits", "testbed.worker.workloads.digits.Digits"),
        strategy=Part(name, "testbed.worker.strategies.kfac.KFAC", {"variant": variant, **params}),
        compressor=Part("none", "compressors.none.Uncompressed"),
        device=Part("native", "testbed.core.device.Native"),
        steps=1,
    )


def fast(workers: int) -> Topology:
    return lan.build(workers=workers, lan_rate=FAST)


def slow(workers: int) -> Topology:
    return lan.build(workers=workers, lan_rate=f"{RATE_BIT_S} bit/s")


def step_s(variant: str, topology: Topology, of: Profile, **params: Any) -> float:
    found = plan(spec(variant, topology, **params), of, of)
    return follow(found, Network(topology, IDEAL)).step_s


def pass_s(layers: int) -> float:
    """All but second-order work."""
    return OTHER_S + layers * (FORWARD_S + BACKWARD_S) + OPTIMIZER_S


def second_order(variant: str, workers: int, of: Profile, **params: Any) -> SecondOrderPlan:
    found = plan(spec(variant, slow(workers), **params), of, of).second_order
    assert found is not None
    return found


@pytest.mark.parametrize("variant", ["d", "mpd", "spd", "pad", "dp"])
def test_one_worker_does_all_of_it(variant: str) -> None:
    all_s = 2 * (2 * FACTOR_S + 2 * INVERSE_S + PRECONDITION_S)
    assert step_s(variant, fast(1), profile(8, 8)) == pytest.approx(pass_s(2) + all_s)


def test_in_d_kfac_everybody_computes_everything() -> None:
    of = profile(8, 8, 8)
    found = plan(spec("d", fast(4)), of, of)
    assert found.compute_s == pytest.approx(pass_s(3) + 3 * (2 * FACTOR_S + 2 * INVERSE_S + PRECONDITION_S))
    assert found.work_s == pytest.approx(of.work_step_s)
    assert step_s("d", fast(4), of) == pytest.approx(found.compute_s, rel=1e-5)


@pytest.mark.parametrize("workers", [2, 4, 8])
@pytest.mark.parametrize("variant", ["mpd", "pad"])
def test_inversions_are_shared_out(variant: str, workers: int) -> None:
    """Eight factors alike, one or more for each."""
    of = profile(8, 8, 8, 8)
    saved_s = 8 * INVERSE_S * (1 - 1 / workers)
    found_s = step_s("d", fast(workers), of) - step_s(variant, fast(workers), of)
    assert found_s == pytest.approx(saved_s, rel=1e-4)


def test_in_dp_kfac_owners_do_all_of_their_layers() -> None:
    each_s = 2 * FACTOR_S + 2 * INVERSE_S + PRECONDITION_S
    assert step_s("dp", fast(2), profile(8, 8)) == pytest.approx(pass_s(2) + each_s, rel=1e-5)


def test_the_slowest_owner_is_waited_for() -> None:
    """One layer of three, whose owner has nobody to share with: the other has two."""
    each_s = 2 * FACTOR_S + 2 * INVERSE_S + PRECONDITION_S
    of = profile(8, 8, 8)
    found = plan(spec("dp", fast(2)), of, of)
    assert found.work_s == pytest.approx(1.5 * each_s)
    times = follow(found, Network(fast(2), IDEAL))
    assert times.step_s == pytest.approx(pass_s(3) + 2 * each_s, rel=1e-5)
    assert times.exposed_s == pytest.approx(0.5 * each_s, rel=1e-3)


def test_factors_that_travel_while_others_are_computed_cost_nothing() -> None:
    """D-KFAC sends all after backward, beside gradients and over the same link; SPD-KFAC "a" while forward goes on and
    "g" while backward does. Inverting is too cheap here for SPD-KFAC to leave it to one."""
    of, two = profile(500, inverse_s=0.0), slow(2)
    factors_s = 2 * 4 * triangle(500) * SECOND_BYTE
    assert factors_s / 2 < FORWARD_S
    d_s, spd_s = step_s("d", two, of), step_s("spd", two, of, factor_fusion="layers")
    assert spd_s == pytest.approx(pass_s(1) + 2 * FACTOR_S + PRECONDITION_S + 4000 * SECOND_BYTE)
    assert d_s == pytest.approx(spd_s + factors_s)
    # MPD-KFAC: both inverses go to the other worker; the links go both ways, but the thread takes one by one
    assert step_s("mpd", two, of) == pytest.approx(d_s + factors_s)


def test_a_layer_with_two_workers_over_a_wan() -> None:
    """PAD-KFAC: "a" goes to rank 0 and "g" to rank 1 while they compute. Then gradients and traces go around, each in
    two round trips; both invert theirs. Rank 0 is half a round trip behind, so that rank 1 has long said that it
    listens: half a round trip each way, first "a", then "g", after which rank 0 is behind again."""
    topology = two_regions.build(workers=2, rate=f"{RATE_BIT_S} bit/s", rtt=f"{RTT_S} s", lan_rate="10 Gbit/s")
    of = profile(20)
    computed_s = pass_s(1) + 2 * FACTOR_S + INVERSE_S + PRECONDITION_S
    sent_s = (4000 + 4 * 2 + 2 * 4 * triangle(20)) * SECOND_BYTE
    assert step_s("pad", topology, of) == pytest.approx(computed_s + 5 * RTT_S + sent_s, rel=1e-4)


def test_buckets_wait_for_factors_before_them() -> None:
    """The last layer's gradients leave when both "a", its "g" and its backward are over, and are longer on their way
    than the other layer computes; those of both pass the same link."""
    of = profile(2, 2, parameters=3_000_000, buckets=2)
    bucket_s = 4 * 3_000_000 * SECOND_BYTE
    assert bucket_s > BACKWARD_S + FACTOR_S
    found = plan(spec("d", slow(2), bucket_size="12 MB"), of, of)
    leaves_s = OTHER_S + 2 * FORWARD_S + BACKWARD_S + 3 * FACTOR_S
    after_s = 4 * INVERSE_S + 2 * PRECONDITION_S + OPTIMIZER_S
    factors_s = 4 * 4 * triangle(2) * SECOND_BYTE
    found_s = follow(found, Network(slow(2), IDEAL)).step_s
    assert found_s == pytest.approx(leaves_s + 2 * bucket_s + factors_s + after_s, rel=1e-6)


def test_groups_leave_with_their_last_factor_and_buckets_come_between() -> None:
    of = profile(8, 16, buckets=2)
    found = second_order("spd", 2, of, factor_fusion="layers", bucket_size="4 kB")
    assert found.is_pipelined
    assert [factor.at_s for factor in found.factors] == pytest.approx(
        [OTHER_S + at for at in (0, FORWARD_S, 2 * FORWARD_S, 2 * FORWARD_S + BACKWARD_S)]
    )
    assert [factor.buckets_before for factor in found.factors] == [0, 0, 0, 1]
    assert [(group.elements, group.last) for group in found.groups] == [
        (triangle(8), 0),
        (triangle(16), 1),
        (triangle(16), 2),
        (triangle(8), 3),
    ]
    whole = second_order("d", 2, of)
    assert [(group.elements, group.last) for group in whole.groups] == [(2 * triangle(8) + 2 * triangle(16), 3)]
    assert not whole.is_pipelined


def test_traces_are_averaged_where_owners_have_one_factor_of_a_layer() -> None:
    of = profile(8, 8)
    assert second_order("pad", 2, of).traces == 4
    assert second_order("pad", 2, of, inverse="eigen").traces == 0
    assert second_order("pad", 2, of, results="gradients").traces == 0
    assert second_order("mpd", 2, of).traces == 0


def test_pad_kfac_sends_half_of_the_bytes_of_factors() -> None:
    of, workers = profile(8, 16, 24, 32), 4
    all_bytes = 2 * 4 * sum(map(triangle, (8, 16, 24, 32)))
    gradients = 2 * (workers - 1) * 4 * 4000
    sent = {
        name: traffic(plan(spec(name, slow(workers)), of, of), slow(workers), IDEAL).payload_bytes - gradients
        for name in ("d", "mpd", "pad", "dp")
    }
    traces = 2 * (workers - 1) * 4 * 8
    assert sent["d"] == 2 * (workers - 1) * all_bytes
    assert sent["mpd"] == 3 * (workers - 1) * all_bytes
    assert sent["pad"] - traces == 2 * (workers - 1) * all_bytes
    assert sent["dp"] == (workers - 1) * 4 * sum(d * d for d in (8, 16, 24, 32))


def test_chains_cross_the_wan_but_for_one_neighbour() -> None:
    """Both ways: of a ring of four over two regions one chain in two leaves out a pair that is in two regions."""
    topology = two_regions.build(workers=4, rate="100 Mbit/s", rtt="0 s")
    of = profile(8, 8)
    found = plan(spec("mpd", topology), of, of)
    assert found.second_order is not None
    without = dataclasses.replace(found, second_order=dataclasses.replace(found.second_order, results=()))
    more = [
        a.wire_bytes - b.wire_bytes
        for a, b in zip(traffic(found, topology, IDEAL).wan, traffic(without, topology, IDEAL).wan, strict=True)
    ]
    # inverses of ranks 0 to 3: roots 0 and 2 begin a region, so their chains cross once
    assert sum(more) == pytest.approx((1 + 2 + 1 + 2) * 4 * triangle(8) * WIRE_RATIO)


def test_plans_survive_json() -> None:
    of = profile(8, 16)
    for variant in ("spd", "dp"):
        found = plan(spec(variant, slow(2)), of, of)
        assert StepPlan.from_json(json.loads(json.dumps(found.to_json()))) == found


@pytest.mark.parametrize(
    ("params", "said"),
    [
        ({"inverse_every": 10}, "strategy.inverse_every=10: only steps that take and invert all factors"),
        ({"factor_every": 5, "inverse_every": 5}, "strategy.factor_every=5: only steps"),
        ({"accumulate": 2}, "strategy.accumulate=2: only steps"),
        ({"compress": "all"}, "strategy.compress=all: only gradients are simulated compressed; use gradients"),
    ],
)
def test_what_is_not_simulated_is_refused(params: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said):
        plan(spec("spd", slow(2), **params), profile(8), profile(8))


def test_profiles_of_other_strategies_and_other_exchanges_are_refused() -> None:
    of, asked = profile(8), spec("spd", slow(2))
    plain = dataclasses.replace(of, factored=(), work=(), collectives=of.collectives[:1])
    with pytest.raises(InputError, match="strategy=spd_kfac: the profile of w says nothing of factors"):
        plan(asked, plain, plain)
    with pytest.raises(InputError, match=r"does not say how long 1 pieces of work take \(the first is l0\.a\)"):
        plan(asked, of, dataclasses.replace(of, work=of.work[1:]))
    gathers = dataclasses.replace(of, collectives=(Collective(kind="all_gather", size_bytes=9), of.collectives[-1]))
    with pytest.raises(InputError, match="beside factors only sums are simulated"):
        plan(asked, gathers, gathers)


def test_the_error_that_was_validated_is_not_claimed() -> None:
    both = profile(8, 8).to_json()
    found = answer({"spec": spec("spd", slow(2)).to_json(), "cpu": both, "device": both})
    assert "  strategy spd_kfac (validated: " in text(found)
    said = found.to_json()
    assert not said["validation"]["inside"]
    assert said["work_s"] == pytest.approx(2 * (2 * FACTOR_S + INVERSE_S + PRECONDITION_S))  # two of four inverses
    assert said["step_s"] == pytest.approx(said["compute_s"] + said["exposed_communication_s"], rel=1e-6)
