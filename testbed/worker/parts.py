"""The four parts of a spec, built and checked together."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from compressors.base import Compressor
from testbed.core.device import Device
from testbed.core.errors import InputError
from testbed.core.spec import RunSpec
from testbed.worker.build import build
from testbed.worker.strategy import Strategy
from testbed.worker.workload import Workload


@dataclass(frozen=True)
class Parts:
    workload: Workload
    strategy: Strategy
    compressor: Compressor
    device: Device

    def steps(self, spec: RunSpec) -> int:
        """Optimizer steps of the run."""
        return spec.steps or math.ceil((spec.epochs or 0) * self.workload.samples() / (spec.batch_size * spec.workers))


def build_parts(spec: RunSpec) -> Parts:
    """
    Raises:
        InputError: with the faults of all parts at once, or of their combination.
    """
    built: dict[str, Any] = {}
    faults: list[str] = []
    kinds = {"workload": Workload, "strategy": Strategy, "compressor": Compressor, "device": Device}
    for kind, base in kinds.items():
        try:
            built[kind] = build(kind, getattr(spec, kind), base)
        except InputError as error:
            faults += error.faults
    if "compressor" in built:
        faults += [f"compressor={spec.compressor.name}: {fault}" for fault in built["compressor"].faults(spec.workers)]
    if {"workload", "device"} <= built.keys() and built["device"].computes and not built["workload"].computes:
        faults.append(
            f"device={spec.device.name}: workload={spec.workload.name} does no arithmetic that could be timed; use"
            " device=paced device.step_s=… or device=profile device.file=…"
        )
    if "strategy" in built and spec.batch_size % built["strategy"].micro_batches:
        parts = built["strategy"].micro_batches
        faults.append(f"batch_size={spec.batch_size}: cannot be taken in {parts} equal parts, as the strategy does")
    if {"compressor", "strategy", "workload"} <= built.keys():
        faults += built["strategy"].faults(built["compressor"], built["workload"], spec.workers)
    if faults:
        raise InputError(*faults)
    return Parts(**built)
