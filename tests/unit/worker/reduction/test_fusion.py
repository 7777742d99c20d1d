"""The rules of fusion, applied to a model and to links."""

from __future__ import annotations

import dataclasses

import pytest
from torch import nn

from testbed.core.costs.collective import MESSAGE_CPU_S, OWN_MESSAGE_CPU_S
from testbed.core.costs.fusion import Cost
from testbed.core.costs.run_costs import all_reduce_cost
from testbed.core.costs.sockets import Gloo
from testbed.core.device.profile import LayerTimes, Profile
from testbed.core.spec.run_spec import Part, RunSpec
from testbed.core.spec.topology import Topology
from testbed.worker.device.compute_times import ComputeTimes
from testbed.worker.reduction.fusion import grouped
from topologies import two_regions


def _spec(workers: int = 4, dilation: float = 1.0) -> RunSpec:
    part = Part("some", "some.Thing")
    return RunSpec(
        topology=two_regions.build(workers=workers, rate="100 Mbit/s", rtt="60 ms"),
        workload=part,
        strategy=part,
        compressor=part,
        device=part,
        steps=1,
        dilation=dilation,
    )


@pytest.mark.parametrize(("collective", "message_s"), [("gloo", MESSAGE_CPU_S), ("ring", OWN_MESSAGE_CPU_S)])
def test_a_ring_starts_with_the_delay_of_all_its_messages(collective: str, message_s: float) -> None:
    """2 (P - 1) of them, each as late as the slowest path; a P-th of the bytes each, in full segments over the
    slowest link."""
    spec, size_bytes = _spec(), 50e6
    delay_s = max(p.delay_s for link in spec.topology.links for _, _, p in link.directions())
    cost = all_reduce_cost(spec, collective, size_bytes, width=1.0)
    assert cost.start_s == pytest.approx(6 * (delay_s + message_s), rel=0.02)
    assert cost.second_byte == pytest.approx(1514 / 1448 * 6 / 4 * 8 / 100e6, rel=0.02)
    slowed = all_reduce_cost(dataclasses.replace(spec, dilation=5.0), collective, size_bytes, width=1.0)
    assert slowed.start_s == pytest.approx(6 * (delay_s + message_s / 5), rel=0.02)
    half = all_reduce_cost(spec, collective, size_bytes, width=0.5)
    assert half.second_byte == pytest.approx(cost.second_byte / 2, rel=0.02)


@pytest.mark.parametrize(
    ("collective", "waits"), [("gloo_ring", 6 * 96 / 4 / Gloo.in_flight), ("nccl_ring", 6 * 100e6 / 4 / (4 << 20))]
)
def test_a_host_s_time_for_segments_passes_as_often_as_the_ring_waits_for_one(collective: str, waits: float) -> None:
    """100 MB among four: a ring of gloo's has 96 segments, two under way at once, one of NCCL's chunks of 4 MiB."""
    far = two_regions.build(workers=4, rate="10 Gbit/s", lan_rate="10 Gbit/s", rtt="60 ms")

    def seconds(host_s: dict[str, float], topology: Topology, size_bytes: float = 100e6) -> float:
        spec = dataclasses.replace(_spec(), topology=topology, device=Part("some", "some.Thing", {"host_s": host_s}))
        return all_reduce_cost(spec, collective, 100e6, width=1.0).of(size_bytes)  # type: ignore[arg-type]

    assert seconds({"segment": 9e-4}, far) - seconds({}, far) == pytest.approx(waits * 9e-4, rel=1e-3)
    assert seconds({"segment": 9e-4}, far, 1) - seconds({}, far, 1) == pytest.approx(6 * 9e-4, rel=1e-3)
    slow = two_regions.build(workers=4, rate="100 Mbit/s", lan_rate="100 Mbit/s", rtt="20 ms")
    assert seconds({"segment": 9e-4}, slow) == pytest.approx(seconds({}, slow)), "the wire takes longer"


def _model() -> tuple[nn.Module, ComputeTimes]:
    model = nn.Sequential(nn.Linear(4, 6), nn.Linear(6, 8), nn.Linear(8, 2))
    layers = tuple(
        LayerTimes(name=name, parameters=0, forward_s=0.0, backward_s=seconds)
        for name, seconds in (("0", 1.0), ("1", 2.0), ("2", 4.0))
    )
    profile = Profile(
        workload="", compressor="", batch_size=1, layers=layers, forward_s=1.0, backward_s=7.0, optimizer_s=0.0
    )
    return model, ComputeTimes.known(profile, model)


def test_layers_are_merged_by_their_times_and_the_links() -> None:
    """Those of the layers 2, 1 and 0 are there after 4, 6 and 7 seconds; a layer's bias and weight come together."""
    model, times = _model()
    names = {p: name for name, p in model.named_parameters()}

    def counts(cost: Cost, share: float = 1.0) -> list[int]:
        found = grouped(model.parameters(), 1, "mg_wfbp", names, times, cost, share)
        return [len(group) for group in found]

    assert counts(Cost(0.5, 0.0)) == [2, 2, 2]
    assert counts(Cost(1.5, 0.0)) == [2, 4]  # waiting a second for the last costs less than its own start
    assert counts(Cost(2.5, 0.0)) == [6]
    assert counts(Cost(0.5, 0.0), share=0.2) == [6]  # of a fifth of backward each waits for less than half a second
    assert [len(group) for group in grouped(model.parameters(), 1, "layers", names)] == [2, 2, 2]
