"""How long a pilot may take."""

from __future__ import annotations

import pytest

from testbed.orchestrator.run.dilation.pilot import BUDGET_RATIO, BUDGET_S, END_S, budget_s


@pytest.mark.parametrize(
    ("steps", "step_s", "dilation", "run_s"),
    [(35, 0.19, 24.8, 164.9), (2, 46.0, 4.2, 386.4), (None, 4.0, 10.0, 0.0), (100, 0.0, 3.0, 0.0), (40, 0.1, 2.0, 8.0)],
)
def test_a_tenth_of_the_run_where_that_is_longer(
    steps: int | None, step_s: float, dilation: float, run_s: float
) -> None:
    assert budget_s(steps, step_s, dilation) + END_S == pytest.approx(max(BUDGET_S, BUDGET_RATIO * run_s), rel=1e-3)
