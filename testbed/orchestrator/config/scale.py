"""`workload.scale=S` of a replay: its bytes are S times fewer, so the links are S times slower and the buckets S times
smaller; see core.spec.scale."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from testbed.core.spec.run_spec import Part
from testbed.core.spec.scale import scaled_size_bytes, scaled_topology, scaling_faults
from testbed.core.spec.topology import Topology
from testbed.core.units import parse_size_bytes

REPLAY = "testbed.worker.workloads.replay.Replay"
_BUCKET = "bucket_size"
_CPU_TIMED = (
    "its codecs and updates take CPU seconds of this machine, and tensors S times smaller take too few of them, though"
    " not S times fewer; use scale=1, or a strategy with collectives"
)
_NOT_SCALING = {
    "compressors.powersgd.PowerSGD": "its bytes do not shrink with its tensors",
    "testbed.worker.strategies.fedbuff.FedBuff": _CPU_TIMED,
    "testbed.worker.strategies.federated.Federated": _CPU_TIMED,
    "testbed.worker.strategies.gossip.Gossip": _CPU_TIMED,
    "testbed.worker.strategies.parameter_server.ParameterServer": _CPU_TIMED,
}
"""Compressors and strategies by their class, and why they cannot be scaled (docs/decisions/0089)."""


def scale_of(workload: Part | None) -> float:
    """S; 1 for all workloads that have none, and for what is no number, which the workload itself refuses."""
    if workload is None or workload.target != REPLAY:
        return 1.0
    scale = workload.params.get("scale", 1)
    is_number = isinstance(scale, int | float) and not isinstance(scale, bool)
    return float(scale) if is_number and scale >= 1 else 1.0


def apply_scale(
    parts: Mapping[str, Part | None], topology: Topology, *, has_changes: bool
) -> tuple[dict[str, Part | None], Topology, list[str]]:
    """Parts and topology as they are built, and why they cannot stand for those at full size.

    Args:
        has_changes: there are events or background traffic, whose rates would be those of the full size.
    """
    scale, strategy, compressor = scale_of(parts["workload"]), parts["strategy"], parts["compressor"]
    if scale == 1 or strategy is None:
        return dict(parts), topology, []
    faults = []
    if has_changes:
        faults.append(f"workload.scale={scale:g}: rates of events and of background traffic are not scaled; leave out")
    for kind, part in (("compressor", compressor), ("strategy", strategy)):
        if part is not None and part.target in _NOT_SCALING:
            faults.append(f"workload.scale={scale:g} {kind}={part.name}: {_NOT_SCALING[part.target]}")
    try:
        bucket_bytes = parse_size_bytes(strategy.params[_BUCKET])
    except (KeyError, ValueError):  # it has none, or one that it refuses itself
        bucket_bytes = 2**62
    judged_bytes = 2**62 if strategy.params.get("fusion") == "one" else bucket_bytes
    faults += [f"workload.{fault}" for fault in scaling_faults(topology, scale, bucket_bytes=judged_bytes)]
    if _BUCKET in strategy.params:
        smaller = {**strategy.params, _BUCKET: f"{scaled_size_bytes(bucket_bytes, scale)} B"}
        parts = {**parts, "strategy": replace(strategy, params=smaller)}
    return dict(parts), scaled_topology(topology, scale), faults
