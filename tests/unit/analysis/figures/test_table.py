"""Units of axes."""

from __future__ import annotations

import pytest

from testbed.analysis.figures.table import time_unit


@pytest.mark.parametrize(
    ("values_s", "name"),
    [([], "s"), ([0.5], "ms"), ([2.0], "s"), ([700.0], "min"), ([20_000.0], "h"), ([-3.0, -1.5], "ms")],
)
def test_an_axis_of_times_has_the_unit_of_the_largest(values_s: list[float], name: str) -> None:
    """A run that failed before its beginning has none but negative times."""
    assert time_unit(values_s).name == name
