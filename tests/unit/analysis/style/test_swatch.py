"""Names in tables bear the line and the marker of the figures."""

from __future__ import annotations

import pytest

from testbed.analysis.style.series_style import MARKERS, SeriesStyle
from testbed.analysis.style.swatch import swatch


@pytest.mark.parametrize("marker", MARKERS)
def test_a_swatch_has_the_marker_of_the_figures(marker: str) -> None:
    drawn = swatch(SeriesStyle("#0077E0", marker, (5, 2)))
    assert drawn.count("<path") == 2 and drawn.count("#0077E0") == 2 and 'stroke-dasharray="5 2"' in drawn
    assert "nan" not in drawn
