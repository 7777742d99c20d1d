"""Each published training behind tbf, and how far its prediction and its emulation are from it."""

from __future__ import annotations

from collections.abc import Sequence

from experiments.benchmarks.truth.published import LINKS
from experiments.benchmarks.truth_trainings.measure import EXCHANGE_ALONE_S, FORMS
from experiments.common.tables import Found, disturbed, table

_OFF = ("predicted: %", "emulated: %")
_HEADS = ("(c)", "DiLoCo's exchange, ms", *_OFF, "DDP's step, ms", *_OFF)
_APART_S = {"diloco": EXCHANGE_ALONE_S, "ddp": 0.0}
"""Part of a step that the published time leaves out: it is what an exchange blocks, or all of DDP's step.

An exchange blocks while tensors are copied, too, and links go on then.
"""


def trainings(points: Sequence[Found]) -> str:
    found = {(point["asked"]["method"], point["asked"]["link"]): point for point in points}
    rows = [
        [link, *(cell for method in FORMS for cell in _cells(method, link, found.get((method, link))))]
        for link in LINKS
    ]
    return table(_HEADS, rows)


def _cells(method: str, link: str, point: Found | None) -> list[str]:
    """Return the published time, and in per cent how far the prediction and the emulation are off."""
    form = FORMS[method](link)
    cells = [f"{1e3 * form.measured_s:.0f}", f"{100 * form.error:+.1f}"]
    if point is None:
        return [*cells, "-"]
    result = point["result"]
    off = f"{100 * ((result['mean_step_s'] - _APART_S[method]) / form.measured_s - 1):+.1f}"
    verdict = "" if result["verdict"] == "valid" else f" ({result['verdict']})"
    return [*cells, off + verdict + disturbed(point)]
