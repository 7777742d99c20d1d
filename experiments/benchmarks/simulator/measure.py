"""The simulator against the emulator: step time and bytes of runs, most of them of kinds that nothing was fitted to.

What is measured is the emulator; predictions follow from it by arithmetic, when the table is made. Constants are fitted
to the points of role "calibration" and validated on all others (`calibration.py`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from experiments.common import sources
from experiments.common.benchmark import Point
from experiments.common.tables import Found
from experiments.common.whole_run import perform
from testbed.analysis.simulator.calibration import Emulated
from testbed.analysis.simulator.model.step_plan import StepPlan, plan
from testbed.core.spec.run_spec import RunSpec
from testbed.orchestrator.config.config import resolve

_SECONDS = 30
_STEPS = 8
_CALIBRATION = (
    "topo=wan100m workers=4 device=paced device.step_s=0.1",
    "topo=lan workers=4 device=paced device.step_s=0.05 dilation=4",
    "topo=wan1g workers=2 compressor=fp16 device=paced device.step_s=0.05",
    "topo=wan10m workers=4 compressor=int8 device=paced device.step_s=0.2",
    "topo=us3 workers=3 compressor=topk device=paced device.step_s=0.1",
)
_VALIDATION = (
    "topo=wan1g workers=4",
    "topo=wan1g workers=4 compressor=topk",
    "topo=wan1g workers=2 device=paced device.step_s=0.05",
    "topo=wan1g workers=8 compressor=fp16 device=paced device.step_s=0.5",
    "topo=wan1g workers=4 strategy=torch_ddp",
    "topo=wan100m workers=2 compressor=int8 device=paced device.step_s=0.05",
    "topo=wan100m workers=4 compressor=powersgd",
    "topo=wan100m workers=8 compressor=topk device=paced device.step_s=0.3",
    "topo=wan10m workers=2 compressor=topk device=paced device.step_s=0.1",
    "topo=wan10m workers=4 compressor=fp16 device=paced device.step_s=0.2",
    "topo=us3 workers=3 device=paced device.step_s=0.05",
    "topo=us3 workers=6 compressor=powersgd",
    "topo=us3 workers=3 strategy=torch_ddp device=paced device.step_s=0.2",
    "topo=dtfm-regional4 workers=4 device=paced device.step_s=0.2",
    "topo=dtfm-regional4 workers=8 compressor=int8 device=paced device.step_s=0.4",
    "topo=dtfm-regional4 workers=4 compressor=topk",
    "topo=dtfm-world8 workers=8 compressor=fp16 device=paced device.step_s=0.5",
    "topo=wan1g workers=4 workload=replay workload.model=mobilenet_v2 device=paced device.step_s=0.3",
    "topo=lan workers=4 compressor=fp16 device=paced device.step_s=0.05 dilation=4",
    "topo=lan workers=8 compressor=topk device=paced device.step_s=0.1 dilation=4",
)
_CLOSED_FORMS = (
    "topo=wan1g workers=4 strategy.collective=hierarchical",
    "topo=dtfm-regional4 workers=8 strategy.collective=two_shot device=paced device.step_s=0.4",
)
"""Collectives of the testbed's own, which are predicted by closed forms alone."""
ROLES = {"calibration": _CALIBRATION, "validation": _VALIDATION, "closed form": _CLOSED_FORMS}


def points(*, quick: bool) -> list[Point]:
    if quick:
        return [Point({"run": _VALIDATION[2], "role": "validation"}, _SECONDS)]
    return [Point({"run": run, "role": role}, _SECONDS) for role, runs in ROLES.items() for run in runs]


def depends_on(**_: Any) -> Iterator[Path]:
    return sources.of_whole_runs("testbed.analysis.simulator.model.step_plan")


def measure(run: str, role: str) -> dict[str, Any]:
    del role
    overrides = [*run.split(), f"steps={_STEPS}", "evaluate_every=1000"]
    made = perform(overrides)
    spec = _spec(run, made.summary["dilation"])
    payload = sum(event["payload_bytes"] for ranks in made.steps for event in ranks.values()) / len(made.steps)
    return {
        **made.facts(),
        "payload_bytes": payload,
        "wan_bytes": (made.summary["bytes"]["wire_wan"] or 0) / _STEPS,
        "plan": plan(spec, made.cpu, made.device).to_json(),
    }


def emulated(point: Found) -> Emulated:
    result = point["result"]
    spec = _spec(point["asked"]["run"], result["dilation"])
    step = StepPlan.from_json(result["plan"])
    return Emulated(spec, step, result["step_s"], result["payload_bytes"], result["wan_bytes"])


def _spec(run: str, dilation: float) -> RunSpec:
    spec = resolve(run.split()).spec
    return replace(spec, dilation=dilation, auto_dilation=False)
