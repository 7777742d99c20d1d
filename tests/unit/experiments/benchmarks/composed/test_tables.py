"""The table of composed rounds, of points made up, and the runs that it is measured with."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from experiments.benchmarks.composed import measure, tables
from experiments.benchmarks.composed.measure import AT_ONCE, IN_SEQUENCE
from testbed.orchestrator.config.config import resolve
from tests.unit.analysis.in_sequence import make

RESULT: dict[str, Any] = {
    "verdict": "valid",
    "reasons": [],
    "rounds": 7,
    "clients": 16.0,
    "clients_s": 20.0,
    "dilation": 2.0,
    "measured_s": 10.0,
    "as_made_s": 9.9,
    "composed_s": 10.4,
}


def point(workers: int, **result: Any) -> dict[str, Any]:
    asked = {"workload": "glyphs", "rate_mbit_s": 20, "workers": workers}
    return {"asked": asked, "result": {**RESULT, **result}, "is_disturbed": False, "others_cores": 0.0}


def test_the_composed_time_is_held_against_that_of_clients_at_once() -> None:
    found = [point(AT_ONCE, composed_s=1.0), point(IN_SEQUENCE, measured_s=6.0, as_made_s=6.06)]
    text = tables.composed(found)
    assert text.splitlines()[2] == "| glyphs | 20 | 10.000 | 6.000 | +1.0 | 10.400 | +4.0 | yes |"
    assert text.endswith("Worst error: 4.0%, of 1 cases.")
    found[1]["result"]["composed_s"] = 9.4
    assert "| -6.0 | no |" in tables.composed(found)


@pytest.mark.parametrize(
    ("points", "why"),
    [
        ([point(AT_ONCE), point(IN_SEQUENCE, verdict="invalid", reasons=["late"])], "5 workers, invalid: late"),
        ([point(AT_ONCE, verdict="invalid", reasons=["late"]), point(IN_SEQUENCE)], "17 workers, invalid: late"),
        ([point(AT_ONCE), point(IN_SEQUENCE, clients_s=21.0)], "not the same clients"),
        ([point(AT_ONCE), point(IN_SEQUENCE, rounds=6)], "not the same clients"),
        ([point(AT_ONCE)], "not measured with 5 workers"),
    ],
)
def test_what_cannot_be_compared_has_no_error(points: list[dict[str, Any]], why: str) -> None:
    of_case = {one["asked"]["workers"]: one for one in points}
    assert tables.error(of_case) is None
    text = tables.composed(points)
    assert why in text.splitlines()[2] and "| - |" in text.splitlines()[2]
    assert text.endswith("No case could be judged.")


def test_figures_are_means_over_rounds_but_the_first(tmp_path: Path) -> None:
    found = measure.figures(make(tmp_path, rounds=4))
    assert (found["rounds"], found["clients"], found["clients_s"], found["longest_client_s"]) == (3, 4, 7.0, 3.0)
    assert found["measured_s"] == pytest.approx(8.0)
    assert found["composed_s"] == pytest.approx(8.98)
    assert found["as_made_s"] == pytest.approx(7.78)


def test_both_runs_of_a_case_are_the_same_but_for_their_workers() -> None:
    asked = [one.asked for one in measure.points(quick=False)]
    assert len(asked) == 2 * sum(map(len, measure.RATES_MBIT_S.values()))
    for one in asked[:2]:
        found = resolve(measure.overrides(**one))
        assert not found.faults
        assert found.spec.workers == one["workers"]
        assert found.spec.strategy.params["participants"] == measure.PARTICIPANTS
        assert {link.forward.rate_bit_s for link in found.spec.topology.wan_links} == {1e6 * one["rate_mbit_s"]}
    words = [[word for word in measure.overrides(**one) if not word.startswith("workers=")] for one in asked[:2]]
    assert words[0] == words[1]


def test_figures_depend_on_what_clients_do_and_on_what_composes_them() -> None:
    names = {path.name for path in measure.depends_on("blocks", 20, AT_ONCE)}
    assert {"local_client.py", "fleet.py", "server.py", "blocks.yaml", "server_model.py", "rounds.py"} <= names
