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
_NOT_SCALING = {"compressors.powersgd.PowerSGD": "its bytes do not shrink with its tensors"}
"""Compressors by their class, and why they cannot be scaled."""


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
    if compressor is not None and compressor.target in _NOT_SCALING:
        faults.append(f"workload.scale={scale:g} compressor={compressor.name}: {_NOT_SCALING[compressor.target]}")
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
