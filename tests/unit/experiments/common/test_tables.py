"""What tables are made of."""

from __future__ import annotations

import pytest

from experiments.common.tables import half_width


def test_the_interval_of_many_values_is_as_narrow_as_they_allow() -> None:
    values = [0.0, 1.0] * 8
    # t of 15 degrees of freedom, 2.1314, times the deviation 0.5164, over 4
    assert half_width(values) == pytest.approx(0.2752, abs=1e-4)
