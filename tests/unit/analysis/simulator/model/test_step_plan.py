"""What a step does, read from profiles."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from testbed.analysis.simulator.model.constants import Constants
from testbed.analysis.simulator.model.network import Network
from testbed.analysis.simulator.model.step_plan import StepPlan, plan
from testbed.analysis.simulator.model.traffic import traffic
from testbed.analysis.simulator.predict_command import answer
from testbed.analysis.simulator.timeline.steps import follow
from testbed.core.costs.sockets import GLOO, NCCL, SocketLibrary
from testbed.core.device.codecs.work import CodecTimes
from testbed.core.device.host_costs import HostCosts
from testbed.core.device.measured import Measured
from testbed.core.device.profile import Collective, LayerTimes, Profile, TensorTimes
from testbed.core.device.timelines.timeline_library import measured
from testbed.core.errors import InputError
from testbed.core.models.model import Layer, Model
from testbed.core.models.model_file import model_to_json
from testbed.core.spec.run_spec import Part, RunSpec
from tests.unit.analysis.simulator.model.invented import LAYERS, profile, spec
from tests.unit.core.device.replays import replay
from topologies import lan, two_regions


def test_buckets_are_ready_once_their_layers_are() -> None:
    """2000 of b fill a bucket; c is in the one before it, a in the one after."""
    found = plan(spec(), profile(500, 2000, 300), profile(500, 2000, 300))
    assert [bucket.elements for bucket in found.buckets] == [500, 2000, 300]
    assert [bucket.ready_s for bucket in found.buckets] == pytest.approx([0.04, 0.06, 0.07])
    assert found.before_s == pytest.approx(0.052)
    assert found.compute_s == pytest.approx(0.052 + 0.07 + 0.003 + 3 * 0.003)


def test_a_bucket_that_ends_inside_a_layer_waits_for_all_of_it() -> None:
    """A bias of 20 was taken along by the bucket before."""
    found = plan(spec(), profile(520, 1980, 300), profile(520, 1980, 300))
    assert [bucket.elements for bucket in found.buckets] == [520, 1980, 300]
    assert [bucket.ready_s for bucket in found.buckets] == pytest.approx([0.06, 0.06, 0.07])


def test_a_bucket_that_ends_inside_a_layer_waits_for_its_own_gradients_where_they_have_times() -> None:
    """The bias of b is ready after a tenth of its layer, its weight after all of it."""
    known = profile(520, 1980, 300)
    tensors = (
        TensorTimes(elements=1980, shape=(1980,), backward_s=0.018),
        TensorTimes(elements=20, shape=(20,), backward_s=0.002),
    )
    layers = (known.layers[0], dataclasses.replace(known.layers[1], tensors=tensors), known.layers[2])
    found = plan(spec(), known, dataclasses.replace(known, layers=layers))
    assert [bucket.ready_s for bucket in found.buckets] == pytest.approx([0.042, 0.06, 0.07])


def test_a_measured_accelerator_is_simulated_with_the_readiness_of_its_gradients() -> None:
    cpu = replay("resnet50", 64)
    total = sum(layer.parameters for layer in cpu.layers)
    head = sum(layer.parameters for layer in cpu.layers[-4:])
    sizes = (head, total - head)
    cpu = dataclasses.replace(
        cpu,
        codec=tuple(
            CodecTimes(elements=size, rounds=(("compress", 0.0), ("decompress", 0.0))) for size in sorted(sizes)
        ),
        buckets=sizes,
        collectives=tuple(Collective(kind="all_reduce", size_bytes=4 * size) for size in sizes),
    )
    device = Measured(accelerator="h200").profile(cpu)
    first, last = plan(spec(), cpu, device).buckets
    ready_s = {
        name: at_s for name, _, at_s in measured("h200", "resnet50", "tf32", 64).without_hooks().gradient_ready_s
    }
    # the classifier and the three convolutions of the last block
    assert first.ready_s == pytest.approx(ready_s["layer4.2.conv1.weight"])
    assert last.ready_s == pytest.approx(ready_s["conv1.weight"])


def test_each_bucket_has_as_many_collectives_as_its_codec_has_rounds() -> None:
    several = profile(500, 2000, 300, rounds=3)
    found = plan(spec(), several, several)
    assert [[one.size_bytes for one in bucket.collectives] for bucket in found.buckets] == [
        [2000, 2001],
        [8000, 8001],
        [1200, 1201],
    ]


def test_only_the_last_micro_batch_has_buckets_to_send() -> None:
    cpu = profile(2500, 300)
    asked = spec(bucket="10 kB")
    whole, parts, after = (
        plan(dataclasses.replace(asked, strategy=_with(asked.strategy, **given)), cpu, cpu)
        for given in ({}, {"accumulate": 4}, {"overlap": False})
    )
    assert parts.compute_s == pytest.approx(whole.compute_s)
    assert parts.backward_s == pytest.approx(whole.backward_s / 4)
    assert [b.ready_s for b in parts.buckets] == pytest.approx([b.ready_s / 4 for b in whole.buckets])
    assert [b.ready_s for b in after.buckets] == [whole.backward_s] * 2
    assert whole.buckets[0].ready_s < whole.backward_s


def test_halves_are_hidden_behind_backward_and_the_next_forward() -> None:
    """Ten layers alike, and links on which an all-reduce takes twice as long as backward: the bound's peak, where ideal
    overlap takes 0.1 + 0.4 s and ideal DeAR 0.2 + 0.2 s."""
    layers = tuple((f"l{index}", 100_000, 0.02) for index in range(10))
    cpu = profile(*[100_000] * 10, layers=layers)
    codec = tuple(dataclasses.replace(one, rounds=(("compress", 0.0), ("decompress", 0.0))) for one in cpu.codec)
    forward = tuple(dataclasses.replace(layer, forward_s=0.01) for layer in cpu.layers)
    cpu = dataclasses.replace(cpu, layers=forward, codec=codec, forward_s=0.1, backward_s=0.2, optimizer_s=0, other_s=0)
    network = lan.build(workers=4, lan_rate="120 Mbit/s")
    steps = {}
    for name in ("dear.DeAR", "ddp.DDP"):
        asked = spec(name, bucket="400 kB")
        strategy = _with(asked.strategy, collective="ring")
        found = plan(dataclasses.replace(asked, strategy=strategy, topology=network), cpu, cpu)
        assert StepPlan.from_json(json.loads(json.dumps(found.to_json()))) == found
        assert found.is_halved == (name == "dear.DeAR")
        assert [bucket.needed_s for bucket in found.buckets] == pytest.approx([0.09 - 0.01 * n for n in range(10)])
        steps[name] = follow(found, Network(network, Constants())).step_s
    assert 0.50 < steps["ddp.DDP"] < 0.55
    assert 0.40 < steps["dear.DeAR"] < 0.46


@pytest.mark.parametrize("start_s", [0.0, 0.3])
@pytest.mark.parametrize("collective", ["hierarchical", "hierarchical_two_shot"])
def test_halves_over_regions_last_together_as_long_as_the_whole(collective: str, start_s: float) -> None:
    """A step that is next to nothing but one bucket's exchange: there is nothing to hide behind."""
    cpu = profile(1_000_000, layers=(("only", 1_000_000, 0.0),))
    codec = tuple(dataclasses.replace(one, rounds=(("compress", 0.0), ("decompress", 0.0))) for one in cpu.codec)
    cpu = dataclasses.replace(cpu, codec=codec, forward_s=0.0, backward_s=0.0, optimizer_s=0.0, other_s=0.0)
    topology = two_regions.build(workers=5, rate="100 Mbit/s")
    steps, sent = {}, {}
    for name in ("dear.DeAR", "ddp.DDP"):
        asked = spec(name, bucket="4 MB")
        strategy = _with(asked.strategy, collective=collective)
        found = plan(dataclasses.replace(asked, strategy=strategy, topology=topology), cpu, cpu)
        steps[name] = follow(found, Network(topology, Constants(), host=HostCosts(collective_s=start_s))).step_s
        sent[name] = traffic(found, topology, Constants())
    notice_s = topology.wan_links[0].forward.delay_s
    assert steps["dear.DeAR"] == pytest.approx(steps["ddp.DDP"] + notice_s, rel=0.02), "the start is halved too"
    assert sent["dear.DeAR"] == sent["ddp.DDP"]


def _with(part: Part, **params: Any) -> Part:
    return dataclasses.replace(part, params={**part.params, **params})


def test_profiles_of_other_buckets_are_refused() -> None:
    with pytest.raises(InputError, match="do not add up to the 2800 parameters"):
        plan(spec(), profile(500, 300), profile(500, 300))


def test_strategies_that_nothing_is_known_of_are_refused() -> None:
    with pytest.raises(InputError, match="strategy=own: cannot be simulated; known: ddp, torch_ddp"):
        plan(spec("own.Own"), profile(2800), profile(2800))


def test_lamb_makes_the_steps_of_ddp() -> None:
    parts = profile(500, 2000, 300)
    assert plan(spec("lamb.LAMB"), parts, parts) == plan(spec(), parts, parts)


def test_slamb_sends_a_turn_after_backward_and_averages_parameters_in_a_share_of_the_steps() -> None:
    """On links where an exchange is nearly all there is: 400 kB in each step, and 4 MB in each fourth."""
    cpu, topology = slamb_profile(), lan.build(workers=4, lan_rate="100 Mbit/s")
    asked = dataclasses.replace(slamb_spec(), topology=topology)
    found = plan(asked, cpu, cpu)
    assert StepPlan.from_json(json.loads(json.dumps(found.to_json()))) == found
    (momenta,) = found.buckets
    assert (momenta.elements, momenta.ready_s, found.parameters) == (100_000, 0.02, 1_000_000)
    assert momenta.codec_s[0] + found.after_s == pytest.approx(cpu.optimizer_s)
    assert found.compute_s == pytest.approx(0.01 + 0.02 + 0.004)
    network = Network(topology, Constants())
    step_s = follow(found, network).step_s
    plain_s = follow(dataclasses.replace(found, average=None), network).step_s
    whole_s = follow(dataclasses.replace(found, average=dataclasses.replace(cpu.collectives[1], share=1.0)), network)
    assert step_s - plain_s == pytest.approx((whole_s.step_s - plain_s) / 4)
    assert whole_s.step_s - plain_s == pytest.approx(6 / 4 * 4e6 * 8 / 100e6, rel=0.15)
    sent = traffic(found, topology, Constants())
    assert sent.payload_bytes == pytest.approx(2 * 3 * (400_000 + 4_000_000 / 4))
    alone = dataclasses.replace(asked, topology=lan.build(workers=1))
    assert follow(plan(alone, cpu, cpu), Network(alone.topology, Constants())).step_s == pytest.approx(0.034)
    prediction = answer({"spec": asked.to_json(), "cpu": cpu.to_json(), "device": cpu.to_json()})
    assert prediction.dense_bytes == 2 * 3 * 4_000_000


def test_slamb_asks_for_a_profile_of_its_own_turns() -> None:
    measured = {"strategy": 'testbed.worker.strategies.slamb.SLAMB {"density": 0.2, "sync_every": 4}'}
    for other in (dataclasses.replace(slamb_profile(), provenance=measured), profile(500, 2000, 300)):
        with pytest.raises(InputError, match=r"not measured with strategy\.density=0\.1 strategy\.sync_every=4"):
            plan(slamb_spec(), other, other)


def slamb_spec() -> RunSpec:
    asked = spec("slamb.SLAMB")
    return dataclasses.replace(asked, strategy=_with(asked.strategy, density=0.1, sync_every=4))


def slamb_profile() -> Profile:
    codec = (CodecTimes(elements=100_000, rounds=(("compress", 0.0), ("decompress", 0.0))),)
    collectives = (
        Collective(kind="all_reduce", size_bytes=400_000),
        Collective(kind="all_reduce", size_bytes=4_000_000, share=0.25),
    )
    times = {"forward_s": 0.01, "backward_s": 0.02, "optimizer_s": 0.004, "other_s": 0.0}
    layers = (LayerTimes(name="only", parameters=1_000_000, forward_s=0.01, backward_s=0.02),)
    made = dataclasses.replace(profile(), layers=layers, buckets=(100_000,), codec=codec, collectives=collectives)
    return dataclasses.replace(made, **times)


def test_torch_closes_a_bucket_once_it_is_full() -> None:
    found = plan(spec("torch_ddp.TorchDDP"), profile(), profile())
    assert [bucket.elements for bucket in found.buckets] == [2500, 300]
    assert [bucket.collectives[0].size_bytes for bucket in found.buckets] == [10000, 1200]


def test_torch_takes_a_layer_s_tensors_one_by_one() -> None:
    """3000 elements pass the 2000 asked for: the bias closes no bucket, the weight does."""
    tensors = tuple(TensorTimes(elements=n, shape=(n,), backward_s=0.01) for n in (2000, 1000))
    layers = tuple(
        LayerTimes(name=name, parameters=3000, forward_s=0.0, backward_s=0.02, tensors=tensors) for name in "ab"
    )
    known = dataclasses.replace(profile(), layers=layers, backward_s=0.04)
    found = plan(spec("torch_ddp.TorchDDP"), known, known)
    assert [bucket.elements for bucket in found.buckets] == [3000, 3000]
    small = plan(spec("torch_ddp.TorchDDP", bucket="4 kB"), known, known)
    assert [bucket.elements for bucket in small.buckets] == [1000, 2000, 1000, 2000]
    assert [bucket.ready_s for bucket in small.buckets] == pytest.approx([0.01, 0.02, 0.03, 0.04])


@pytest.mark.parametrize(("fusion", "buckets"), [("one", [2800]), ("layers", [500, 2000, 300]), ("size", [2500, 300])])
def test_buckets_follow_the_rule_of_fusion(fusion: str, buckets: list[int]) -> None:
    asked = spec(bucket="10 kB")
    asked = dataclasses.replace(asked, strategy=fused(asked.strategy, fusion))
    found = plan(asked, profile(*buckets), profile(*buckets))
    assert [bucket.elements for bucket in found.buckets] == buckets


def test_a_search_of_sizes_is_not_simulated() -> None:
    asked = spec()
    asked = dataclasses.replace(asked, strategy=fused(asked.strategy, "tuned"))
    with pytest.raises(InputError, match=r"strategy\.fusion=tuned: cannot be simulated; known: size, "):
        plan(asked, profile(500, 2000, 300), profile(500, 2000, 300))


def fused(strategy: Part, fusion: str) -> Part:
    return dataclasses.replace(strategy, params={**strategy.params, "fusion": fusion})


BUFFERS_BYTES = 8_000_000


def buffered(tmp_path: Path, **params: Any) -> StepPlan:
    """A plan of a replay whose table has buffers."""
    table = tmp_path / "mine.json"
    layers = tuple(Layer(name, ((parameters,),), 1.0) for name, parameters, _ in LAYERS)
    table.write_text(json.dumps(model_to_json(Model("mine", layers, 0, None, "a sample", "a test", BUFFERS_BYTES))))
    asked = spec(workload=Part("replay", "testbed.worker.workloads.replay.Replay", {"model": str(table)}))
    asked = dataclasses.replace(asked, strategy=_with(asked.strategy, **params))
    return plan(asked, profile(500, 2000, 300), profile(500, 2000, 300))


@pytest.mark.parametrize(("collective", "library"), [("gloo", GLOO), ("nccl_ring", NCCL)])
def test_buffers_are_sent_and_waited_for_before_forward(
    collective: str, library: SocketLibrary, tmp_path: Path
) -> None:
    topology = two_regions.build(workers=4)
    without, found = (buffered(tmp_path, collective=collective, broadcast_buffers=sends) for sends in (False, True))
    assert (without.buffers_bytes, found.buffers_bytes) == (0, BUFFERS_BYTES)
    network = Network(topology, Constants())
    before, after = follow(without, network), follow(found, Network(topology, Constants()))
    broadcast_s = library.broadcast_s(BUFFERS_BYTES, network.cluster)
    assert after.step_s - before.step_s == pytest.approx(broadcast_s, rel=0.02)
    sent = [traffic(one, topology, Constants()) for one in (without, found)]
    assert sent[1].payload_bytes - sent[0].payload_bytes == 3 * BUFFERS_BYTES
    over_wan = sum(link.wire_bytes for link in sent[1].wan) - sum(link.wire_bytes for link in sent[0].wan)
    crossing = 1 if collective == "nccl_ring" else 2  # ranks 0 and 1 are in one region; of a tree 0 sends to 2, 1 to 3
    assert over_wan == pytest.approx(crossing * BUFFERS_BYTES * 1514 / 1448, rel=1e-6)


def test_buffers_of_a_model_that_computes_are_not_known() -> None:
    known, asked = profile(500, 2000, 300), spec()
    asked = dataclasses.replace(asked, strategy=_with(asked.strategy, broadcast_buffers=True))
    with pytest.raises(InputError, match=r"strategy\.broadcast_buffers: cannot be simulated with workload=digits"):
        plan(asked, known, known)


def test_plans_survive_json() -> None:
    found = plan(spec(), profile(500, 2000, 300), profile(500, 2000, 300))
    assert StepPlan.from_json(json.loads(json.dumps(found.to_json()))) == found
