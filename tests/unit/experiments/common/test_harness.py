"""Points of benchmarks: what is kept of them, on which machine, by which code."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from experiments.common import harness
from experiments.common.benchmark import AGAINST, Point, load
from experiments.common.harness import Results
from experiments.common.page import missing_line
from testbed.core.errors import RunError
from testbed.orchestrator.machine import provenance

POINT = Point({"rate_bit_s": 1e6}, 1)


def measured(others_cores: float, *, disturbed: bool) -> dict[str, Any]:
    return {"others_cores": others_cores, "is_disturbed": disturbed, "result": {}}


def machine(kernel: str) -> dict[str, Any]:
    return {"kernel": kernel, "cpu": "a processor", "cores": 2, "memory_bytes": 2**34}


@pytest.mark.parametrize(
    ("before", "after", "kept"),
    [
        ((0.01, False), (0.02, False), 0.02),
        ((0.30, True), (0.50, False), 0.50),
        ((0.05, False), (0.04, True), 0.05),
        ((0.30, True), (0.50, True), 0.30),
        ((0.50, True), (0.30, True), 0.30),
    ],
)
def test_a_measurement_gives_way_to_a_less_disturbed_one_alone(
    before: tuple[float, bool], after: tuple[float, bool], kept: float, tmp_path: Path
) -> None:
    results = Results(tmp_path, "accuracy")
    assert results.keep(POINT, "code", measured(before[0], disturbed=before[1]))
    assert results.keep(POINT, "code", measured(after[0], disturbed=after[1])) == (kept == after[0])
    (found,) = Results(tmp_path, "accuracy").found()
    assert found["others_cores"] == kept
    assert results.keep(POINT, "newer code", measured(0.9, disturbed=True))


def test_a_point_names_the_machine_that_has_measured_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old = {"asked": {"rate_bit_s": 9e6}, "code_hash": "code", "measured_at": "2026-11-21T00:00:00+00:00"}
    written = {"benchmark": "accuracy", "machine": machine("old"), "points": [{**old, **measured(0, disturbed=False)}]}
    (tmp_path / "accuracy.json").write_text(json.dumps(written))
    monkeypatch.setattr(harness, "machine", lambda: machine("new"))
    Results(tmp_path, "accuracy").keep(POINT, "code", measured(0, disturbed=False))
    monkeypatch.setattr(harness, "machine", lambda: machine("of the tables"))
    again = Results(tmp_path, "accuracy")
    again.save()
    found = list(Results(tmp_path, "accuracy").found())
    assert {point["asked"]["rate_bit_s"]: point["machine"]["kernel"] for point in found} == {9e6: "old", 1e6: "new"}


@pytest.mark.parametrize(("changes", "said"), [("", "0123abc"), (" M Makefile", "0123abc+"), (None, "0123abc")])
def test_a_point_names_the_commit_that_has_measured_it(
    changes: str | None, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = {"rev-parse": "0123abc", "status": changes}
    monkeypatch.setattr(harness, "machine", lambda: machine("new"))
    monkeypatch.setattr(
        provenance, "_said", lambda *words: next((answers[word] for word in words if word in answers), None)
    )
    Results(tmp_path, "accuracy").keep(POINT, "code", measured(0, disturbed=False))
    (found,) = Results(tmp_path, "accuracy").found()
    assert found["commit"] == said


def test_points_never_measured_are_named_and_those_not_asked_any_more_go(tmp_path: Path) -> None:
    results = Results(tmp_path, "accuracy")
    asked = [Point({"rate_bit_s": rate}, 1) for rate in (1e6, 2e6, 3e6)]
    for one in (asked[0], Point({"rate_bit_s": 9e6}, 1)):
        results.keep(one, "code", {"others_cores": 0.0, "is_disturbed": False, "result": {}})
    found, missing = results.of(asked)
    assert [one["asked"] for one in found] == [asked[0].asked] and missing == asked[1:]
    said = missing_line(missing, len(found))
    assert said.startswith("2 of 3 points were never measured") and '"rate_bit_s": 2000000.0' in said
    results.keep_only(asked)
    assert list(results.points) == [asked[0].key]


def test_of_two_disturbed_measurements_the_less_disturbed_stays(tmp_path: Any) -> None:
    results = Results(tmp_path, "accuracy")
    asked = Point({"rate_bit_s": 1e6}, 1)
    for others in (0.5, 0.3, 0.9):
        results.keep(asked, "code", {"others_cores": others, "is_disturbed": True, "result": {}})
    (kept,) = Results(tmp_path, "accuracy").found()
    assert kept["others_cores"] == 0.3
    assert not results.has(asked, "code")
    assert results.is_disturbed(asked, "code") and not results.is_disturbed(asked, "other code")


def test_a_point_that_is_a_command_is_measured_outside_of_namespaces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(AGAINST, raising=False)
    mounts = Path("/proc/self/mounts").read_text()
    benchmark = load("first_try_cost")
    assert benchmark.runs_commands and not load("accuracy").runs_commands
    with pytest.raises(RunError, match="--against"):  # what it says without root, and without having run anything
        harness.measure(benchmark, benchmark.points()[0])
    assert Path("/proc/self/mounts").read_text() == mounts, "where /sys of a namespace would have been mounted"
