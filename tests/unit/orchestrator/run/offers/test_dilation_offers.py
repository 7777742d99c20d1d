"""What is offered where no dilation does is never refused when it is taken."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from testbed.core.device.codecs.work import CodecTimes
from testbed.core.device.device import Native, Paced
from testbed.core.device.measured import Measured, Published
from testbed.core.device.profile import Profile
from testbed.core.spec.run_spec import Part, RunSpec
from testbed.orchestrator.config.grammar.offers import Offer, Refused
from testbed.orchestrator.run.dilation.first_guess import choose, most_dilation
from tests.unit.core.device.replays import replay
from tests.unit.orchestrator.run.dilation.test_first_guess import profile, spec
from topologies import two_regions

NATIVE, PACED = Part("native", "testbed.core.device.Native"), Part("paced", "testbed.core.device.Paced")


@given(
    workers=st.integers(2, 48),
    cores=st.integers(1, 4),
    rtt_ms=st.integers(20, 500),
    step_s=st.floats(1e-4, 2.0),
    cpu_share=st.floats(0.5, 20.0),
    codec_s=st.sampled_from([0.0, 0.01]),
    cycle=st.sampled_from([1, 2, 10, 50]),
    size_bytes=st.sampled_from([4, 10_000, 4_000_000, 100_000_000]),
    is_paced=st.booleans(),
    switches=st.booleans(),
    tcp=st.sampled_from(["tuned", "stock"]),
)
@settings(max_examples=60, deadline=None)
def test_whatever_is_offered_is_not_refused_when_it_is_taken(
    workers: int,
    cores: int,
    rtt_ms: int,
    step_s: float,
    cpu_share: float,
    codec_s: float,
    cycle: int,
    size_bytes: int,
    is_paced: bool,
    switches: bool,
    tcp: str,
) -> None:
    strategy = Part("local_sgd", "none.none", {"sync_every": cycle})
    device = dataclasses.replace(PACED, params={"step_s": step_s, "codec_speedup": 2.0}) if is_paced else NATIVE
    topology = two_regions.build(workers=workers, rtt=f"{rtt_ms} ms")
    asked = spec(topology, strategy=strategy, device=device, tcp=tcp)
    cpu = dataclasses.replace(profile(step_s, cpu_share * step_s, size_bytes), cycle_steps=cycle)
    layers = tuple(dataclasses.replace(layer, forward_flop=1e6) for layer in cpu.layers)
    cpu = dataclasses.replace(cpu, layers=layers, buckets=(10,))
    cpu = dataclasses.replace(cpu, codec=(CodecTimes(elements=10, rounds=(("compress", codec_s),)),))
    if switches:
        smaller = tuple(dataclasses.replace(layer, forward_flop=3e5) for layer in layers)
        cpu = dataclasses.replace(cpu, switched=dataclasses.replace(cpu, layers=smaller, forward_s=step_s / 10))
    try:
        choose(asked, cpu, _on(device, cpu), cores)
    except Refused as refused:
        for offer in refused.offers:
            taken, again = _taken(asked, cpu, offer)
            assert choose(taken, again, _on(taken.device, again), cores) <= most_dilation(taken)
            # though a step takes a tenth longer when it is measured again
            choose(
                taken, dataclasses.replace(again, cpu_step_s=1.1 * again.cpu_step_s), _on(taken.device, again), cores
            )
    else:
        event("nothing was refused")


def _on(device: Part, cpu: Profile) -> Profile:
    """The profile as a run finds it."""
    one = Paced(**device.params) if device.name == "paced" else Native()
    found = one.profile(cpu)
    return found if cpu.switched is None else dataclasses.replace(found, switched=one.switched(cpu, cpu.switched))


def _taken(asked: RunSpec, cpu: Profile, offer: Offer) -> tuple[RunSpec, Profile]:
    """The run and its profile once the offer is taken, as a user who pastes it gets them."""
    if (steps := offer.changes.get("strategy.sync_every")) is not None:
        strategy = dataclasses.replace(asked.strategy, params={"sync_every": int(steps)})
        return dataclasses.replace(asked, strategy=strategy), dataclasses.replace(cpu, cycle_steps=int(steps))
    if "tcp" in offer.changes:
        return dataclasses.replace(asked, tcp=offer.changes["tcp"]), cpu
    params = {"step_s": float(offer.changes["device.step_s"])}
    kept = (
        {} if "device" in offer.changes else {key: one for key, one in asked.device.params.items() if key != "step_s"}
    )
    return dataclasses.replace(asked, device=dataclasses.replace(PACED, params={**kept, **params})), cpu


def test_a_shorter_interval_is_offered_where_messages_give_the_cores_a_rest() -> None:
    """Workers that exchange nothing for ten steps compute all the time, which a dilation of 2.4 is not enough for."""
    asked = spec(two_regions.build(workers=6, rtt="240 ms"), strategy=Part("local_sgd", "none.none", {"sync_every": 8}))
    native = dataclasses.replace(profile(0.01, 0.01, size_bytes=4_000), cycle_steps=8)
    with pytest.raises(Refused) as caught:
        choose(asked, native, native, cores=2)
    paced, interval, tcp = caught.value.offers
    assert tcp.changes == {"tcp": "reno"}
    assert list(paced.changes) == ["device", "device.step_s"] and list(interval.changes) == ["strategy.sync_every"]
    assert int(interval.changes["strategy.sync_every"]) in (1, 2, 4)
    assert [fault.partition(": ")[0].strip() for fault in caught.value.faults[1:]] == [
        " ".join(one.overrides) for one in (paced, interval, tcp)
    ]


@pytest.mark.parametrize(
    ("device", "changed"),
    [
        (Part("h200", "testbed.core.device.Measured", {"accelerator": "h200", "precision": "bf16"}), ["device.step_s"]),
        (Part("dear", "testbed.core.device.Published", {"source": "dear"}), ["device", "device.step_s"]),
    ],
)
def test_a_slower_device_keeps_the_shape_of_a_timeline(device: Part, changed: list[str]) -> None:
    cpu = dataclasses.replace(replay("resnet50", 64), cpu_step_s=2.0)
    asked = spec(two_regions.build(workers=6, rtt="240 ms"), device=device)
    made = Measured(**device.params) if device.name == "h200" else Published(**device.params)
    with pytest.raises(Refused) as caught:
        choose(asked, cpu, made.profile(cpu), cores=2)
    offer = caught.value.offers[0]
    assert list(offer.changes) == changed
    assert offer.changes.get("device", "h200") == "h200"
