"""The simulator against the emulator: step time and bytes of runs, most of them of kinds that nothing was fitted to.

What is measured is the emulator; predictions follow from it by arithmetic, when the table is made. `python -m
experiments.benchmarks.simulator.simulator` fits the constants to the points of role "calibration", validates them on
all
others, and writes both to experiments/calibration/simulator.json and the table to docs/simulator.md.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from experiments.common.harness import FOLDER, Point, Results
from experiments.common.tables import Found, disturbed, number, table
from experiments.common.whole_run import perform
from testbed.analysis.simulator import calibration
from testbed.analysis.simulator.calibration import Calibration, Emulated
from testbed.analysis.simulator.model.step_plan import StepPlan, plan
from testbed.core.spec.run_spec import RunSpec
from testbed.orchestrator.config.config import resolve
from testbed.orchestrator.machine import provenance
from testbed.orchestrator.machine.clone import CLONE

PAGE = CLONE / "docs" / "simulator.md"
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


def calibrated(found: Sequence[Found]) -> Calibration:
    """Fitted to one part of the points, validated on another; runs that may not be believed are in neither."""
    believed = [point for point in found if point["result"]["verdict"] != "invalid"]
    fitted = [point for point in believed if point["asked"]["role"] == "calibration"]
    others = [point for point in believed if point["asked"]["role"] != "calibration"]
    constants = calibration.fit(list(map(emulated, fitted)))
    here = provenance.collect()
    origin = {
        "machines": list({str(point["machine"]): point["machine"] for point in believed}.values()),
        **{key: here[key] for key in ("commit", "dirty", "code_hash")},
        "fitted_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "fitted_to": [{"run": p["asked"]["run"], "measured_at": p["measured_at"]} for p in fitted],
        "validated_on": [{"run": p["asked"]["run"], "measured_at": p["measured_at"]} for p in others],
    }
    validation = calibration.validate(constants, list(map(emulated, others))) if others else None
    return Calibration(constants, validation, origin)


def simulator(found: Sequence[Found]) -> str:
    """The table, by the constants in the repository."""
    constants = calibration.read(calibration.DEFAULT_FILE).constants

    def row(point: Found) -> list[str]:
        run, result = emulated(point), point["result"]
        error, (payload, wan) = run.error(constants), run.bytes_errors(constants)
        return [
            point["asked"]["run"] + disturbed(point),
            point["asked"]["role"],
            f"{run.step_s:.4f}",
            f"{run.step_s * (1 + error):.4f}",
            number(error, "+.1f", 100),
            number(payload, "+.2f", 100),
            number(wan, "+.2f", 100),
            f"{result['dilation']:g}",
            number(result["late_share"], ".1f", 100),
            result["verdict"],
        ]

    order = list(ROLES)
    rows = sorted(found, key=lambda point: (order.index(point["asked"]["role"]), point["asked"]["run"]))
    heads = ("run", "role", "emulated, s", "predicted, s", "error: %", "payload: %", "WAN bytes: %", "k", "late: %")
    return table((*heads, "verdict"), map(row, rows))


def _spec(run: str, dilation: float) -> RunSpec:
    spec = resolve(run.split()).spec
    return replace(spec, dilation=dilation, auto_dilation=False)


def main() -> None:
    from experiments.common import page as document_page  # which imports this module for its table

    results, asked = Results(FOLDER / "results", "simulator"), points(quick=False)
    results.keep_only(asked)
    results.save()
    found, missing = results.of(asked)
    known = calibrated(found)
    calibration.write(calibration.DEFAULT_FILE, known)
    lines = [simulator(found), "", _summary(known)]
    if missing:
        lines += ["", f"**Missing**: {document_page.missing_line(missing, len(found))}."]
    PAGE.write_text(document_page.between(PAGE.read_text(), "simulator", "\n".join(lines)))
    sys.stdout.write("\n".join([*lines, "", f"written to {calibration.DEFAULT_FILE} and {PAGE}\n"]))


def _summary(known: Calibration) -> str:
    if known.validation is None:
        return "Validated on nothing."
    fitted, errors = known.constants, known.validation
    return (
        f"Validated on {len(errors.errors)} configurations: median error {errors.median_error:.1%}, worst"
        f" {errors.worst_error:.1%}. Constants: goodput {fitted.goodput:.3f}, message_s {fitted.message_s:.2g},"
        f" message_bytes {fitted.message_bytes:.0f}, acknowledged {fitted.acknowledged:.4f}."
    )


if __name__ == "__main__":
    main()
