"""`python -m experiments.benchmarks.simulator.calibration`: fits and validates the simulator's constants.

It fits them to the points of role "calibration", validates them on all others, and writes both to
experiments/calibration/simulator.json and the table to docs/simulator.md.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from datetime import UTC, datetime

from experiments.benchmarks.simulator.measure import emulated, points
from experiments.benchmarks.simulator.tables import simulator
from experiments.common.benchmark import RESULTS
from experiments.common.harness import Results
from experiments.common.page import between, not_measured
from experiments.common.tables import Extract, Found, extracted, write_csv
from testbed.analysis.simulator import calibration
from testbed.analysis.simulator.calibration import Calibration
from testbed.orchestrator.machine import provenance
from testbed.orchestrator.machine.clone import CLONE

PAGE = CLONE / "docs" / "simulator.md"
_SHOWN = Extract(
    lambda row: abs(float(row["error: %"])) >= 5,
    heads=("run", "emulated, s", "predicted, s", "error: %", "verdict"),
)
"""Rows of errors of 5 % and more."""


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


def main() -> None:
    results, asked = Results(RESULTS, "simulator"), points(quick=False)
    results.keep_only(asked)
    results.save()
    found, missing = results.of(asked)
    known = calibrated(found)
    calibration.write(calibration.DEFAULT_FILE, known)
    write_csv(simulator(found), "simulator", CLONE)
    lines = [extracted(simulator(found), "simulator", "docs/simulator.md", _SHOWN), "", _summary(known)]
    if missing:
        lines += ["", not_measured(missing, len(found))]
    PAGE.write_text(between(PAGE.read_text(), "simulator", "\n".join(lines)))
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
