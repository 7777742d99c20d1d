"""A method looks the same on every page, and like no other that has a place of its own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from testbed.analysis.style import method_style
from testbed.analysis.style.method_style import COLORS, MARKERS, plot_style_of
from testbed.analysis.style.swatch import swatch

CONF = Path(__file__).resolve().parents[4] / "experiments" / "conf"


def test_no_two_methods_with_a_place_look_alike() -> None:
    found = {plot_style_of(method) for method in method_style._PLACES}
    assert len(found) == len(method_style._PLACES) == len(set(method_style._PLACES))


@pytest.mark.parametrize("start", range(0, 40, 8))
def test_of_each_eight_in_a_row_no_two_share_a_colour_or_a_marker(start: int) -> None:
    found = [plot_style_of(method) for method in method_style._PLACES[start : start + 8]]
    assert len({plot_style.color for plot_style in found}) == len({plot_style.marker for plot_style in found}) == 8


def test_every_pair_is_had_once_in_a_turn() -> None:
    pairs = {
        (place % len(COLORS), (place + place // len(COLORS)) % len(MARKERS)) for place in range(method_style._TURN)
    }
    assert len(pairs) == method_style._TURN == 88


def test_the_compressors_of_this_tree_have_places() -> None:
    """So that they are told apart for certain; one that is new, or from elsewhere, gets what its name comes to."""
    named = {path.stem for path in (CONF / "compressor").glob("*.yaml")}
    assert len(named & set(method_style._PLACES)) > 40


def test_a_name_without_a_place_looks_the_same_in_every_process() -> None:
    code = "from testbed.analysis.style.method_style import plot_style_of; print(plot_style_of('gaia mine'))"
    said = {
        subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=CONF.parents[1]
        ).stdout
        for _ in range(2)
    }
    assert said == {f"{plot_style_of('gaia mine')}\n"}
    assert plot_style_of("gaia mine") not in {plot_style_of(method) for method in method_style._PLACES}


def test_settings_of_a_method_differ_by_their_dashes_alone() -> None:
    first, second = plot_style_of("topk", 0), plot_style_of("topk", 1)
    assert (first.color, first.marker) == (second.color, second.marker)
    assert first.dashes != second.dashes


@pytest.mark.parametrize("marker", MARKERS)
def test_a_swatch_has_the_marker_of_the_figures(marker: str) -> None:
    drawn = swatch(method_style.PlotStyle("#0072B2", marker, "--"))
    assert drawn.count("<path") == 2 and "#0072B2" in drawn and 'stroke-dasharray="5 3"' in drawn
    assert "nan" not in drawn
