"""DeAR's bell: the points measured, and its bound."""

from __future__ import annotations

from typing import Any

import pytest

from experiments.benchmarks.dear import tables
from experiments.benchmarks.dear.measure import KINDS


def of_the_bell(kind: str, ratio: float, step_s: float, verdict: str = "valid") -> dict[str, Any]:
    asked = {"kind": kind, "ratio": ratio, "repeat": 0}
    return {"asked": asked, "result": {"step_s": step_s, "verdict": verdict}, "is_disturbed": False}


def test_the_bell_has_what_was_measured_and_leaves_out_what_is_invalid() -> None:
    points = [
        *(of_the_bell("dear", ratio, 2.0) for ratio in (1.0, 2.0, 4.0)),
        *(of_the_bell("overlapped", 2.0, 2.5), of_the_bell("overlapped", 4.0, 9.0, "invalid")),
        of_the_bell("one bucket", 1.0, 3.0),
    ]
    assert tables.gains(points, "overlapped") == [(2.0, 1.25)]
    assert tables.gains(points, "one bucket") == [(1.0, 1.5)]
    text = tables.draw(points)
    assert text.startswith("<svg xmlns=") and text.endswith("</svg>\n")
    assert "measured over overlapped" in text and "measured over after backward" not in text
    assert text == tables.draw(points)


def test_the_bound_of_the_bell_peaks_where_the_all_reduce_takes_twice_the_backward_pass() -> None:
    ratios = [ratio / 100 for ratio in range(10, 1000)]
    peak = max(ratios, key=lambda ratio: tables.bound("overlapped", ratio))
    assert (peak, tables.bound("overlapped", peak)) == (2.0, pytest.approx(1.25))
    assert tables.bound("overlapped", 0.5) == pytest.approx(1.0)
    assert tables.bound("one bucket", 2.0) == pytest.approx(1.75)
    assert set(tables.LOOKS) == set(KINDS) - {"dear"}
