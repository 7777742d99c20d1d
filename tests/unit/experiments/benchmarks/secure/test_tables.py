"""The table of what secure sums cost, of points made up, and the runs that it is measured with."""

from __future__ import annotations

from typing import Any

from experiments.benchmarks.secure import measure, tables
from testbed.orchestrator.config.config import resolve

RESULT: dict[str, Any] = {"verdict": "valid", "reasons": [], "dilation": 8.0, "step_s": 0.25, "payload_bytes": 1.1e6}
SECURE = {
    "step_s": 0.5,
    "survivors": 7.0,
    "shares_s": 0.125,
    "recovery_s": 0.1,
    "share_bytes": 8e5,
    "masked_bytes": 4e5,
    "answer_bytes": 6e4,
}


def point(drop: float | None, **result: Any) -> dict[str, Any]:
    asked = {"workload": "blocks", "drop": drop}
    return {"asked": asked, "result": {**RESULT, **result}, "is_disturbed": False, "others_cores": 0.0}


def test_a_round_is_held_against_one_in_the_clear() -> None:
    lines = tables.secure([point(0.3, **SECURE), point(None)]).splitlines()
    assert lines[2] == "| blocks | 100 | in the clear | - | 0.250 | 1.00 | - | - | 1.10 | - | - | - | 8 | valid |"
    assert lines[3].startswith(
        "| blocks | 100 | secure, 30% drop out | 7.0 | 0.500 | 2.00 | 0.125 | 0.100 | 1.10 | 0.80"
    )


def test_nothing_is_held_against_a_round_that_was_not_measured() -> None:
    assert "| 0.500 | - | 0.125 |" in tables.secure([point(0.3, **SECURE)])


def test_runs_of_a_workload_differ_by_their_secure_sums_alone() -> None:
    asked = [one.asked for one in measure.points(quick=False) if one.asked["workload"] == "blocks"]
    assert [one["drop"] for one in asked] == [None, *measure.DROPS]
    words = [[word for word in measure.overrides(**one) if "strategy.secure" not in word] for one in asked]
    assert all(one == words[0] for one in words)
    for one in asked:
        found = resolve(measure.overrides(**one))
        assert not found.faults
        assert found.spec.workers == measure.WORKERS + 1
        assert found.spec.strategy.params["participants"] == measure.WORKERS
        sums = found.spec.strategy.params["secure"]
        assert (None if sums is None else sums["drop"]) == one["drop"]


def test_figures_depend_on_what_masks_and_shares_are_made_with() -> None:
    names = {path.name for path in measure.depends_on("blocks", 0.3)}
    assert {"mask_code.py", "encryption.py", "server.py", "worker.py", "blocks.yaml"} <= names
