"""Each published training behind tbf, its prediction, and its emulation where there is one."""

from __future__ import annotations

from collections.abc import Sequence

from experiments.benchmarks.truth.published import LINKS
from experiments.benchmarks.truth_trainings.measure import FORMS
from experiments.common.tables import Found, disturbed, table

NAMES = {"diloco": "DiLoCo's exchange", "ddp": "DDP's step"}
_HEADS = ("(c)", "rate", "measured, ms", "predicted: %", "emulated, ms", "off: %", "verdict")
_TIMES = {"diloco": "exposed_s", "ddp": "mean_step_s"}
"""Figure of a run that was published: blocked time, or with computing."""


def trainings(points: Sequence[Found]) -> str:
    found = {(point["asked"]["method"], point["asked"]["link"]): point for point in points}
    return table(_HEADS, [_row(method, link, found.get((method, link))) for method in FORMS for link in LINKS])


def _row(method: str, link: str, point: Found | None) -> list[str]:
    form = FORMS[method](link)
    row = [NAMES[method], link, f"{1e3 * form.measured_s:.0f}", f"{100 * form.error:+.1f}"]
    if point is None:
        return [*row, "-", "-", "not emulated"]
    result = point["result"]
    emulated_s = result[_TIMES[method]]
    verdict = f"{result['verdict']}, k {result['dilation']:g}{disturbed(point)}"
    return [*row, f"{1e3 * emulated_s:.0f}", f"{100 * (emulated_s / form.measured_s - 1):+.1f}", verdict]
