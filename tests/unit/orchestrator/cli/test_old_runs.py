"""Runs that earlier commits of this repository made are listed, compared and reported as before files moved."""

from __future__ import annotations

import csv
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from testbed.core.record import run_directory as rundir
from testbed.core.spec.run_spec import RunSpec
from testbed.orchestrator.cli import main as cli
from tests.oracles import ORACLES, read

EXPECTED: dict[str, Any] = read("runs/expected.json")
RUN_IDS: list[str] = sorted(EXPECTED["runs"])


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Copies: what reads a run may seal it."""
    monkeypatch.setattr(rundir, "RUNTIME_ROOT", tmp_path / "run")
    for run_id in RUN_IDS:
        shutil.copytree(ORACLES / "runs" / run_id, tmp_path / "runs" / run_id)
    return tmp_path / "runs"


def without_new(found: Any, expected: Any) -> Any:
    """Return `found` without keys that `expected` lacks: later versions add fields."""
    if isinstance(found, list) and isinstance(expected, list) and len(found) == len(expected):
        return [without_new(*both) for both in zip(found, expected, strict=True)]
    if not (isinstance(found, dict) and isinstance(expected, dict)):
        return found
    return {key: without_new(value, expected[key]) for key, value in found.items() if key in expected}


def test_old_runs_are_listed_as_they_were(root: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["list", "--json", "--runs", str(root)]) == 0
    assert without_new(json.loads(capfd.readouterr().out), EXPECTED["list"]) == EXPECTED["list"]


def by_method(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(rows, key=lambda row: (row["method"], row["differs"]))


def test_old_runs_compare_as_they_did(root: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Their rows came in another order."""
    assert cli.main(["compare", "--json", "--all", "--runs", str(root)]) == 0
    told = json.loads(capfd.readouterr().out)
    found, before = ({**one, "rows": by_method(one["rows"])} for one in (told, EXPECTED["compare"]))
    assert without_new(found, before) == before
    assert cli.main(["compare", "--csv", "--all", "--runs", str(root)]) == 0
    rows, expected = (
        list(csv.DictReader(lines)) for lines in (capfd.readouterr().out.splitlines(), EXPECTED["compare_csv"])
    )
    assert without_new(by_method(rows), by_method(expected)) == by_method(expected)


@pytest.mark.parametrize("run_id", RUN_IDS)
def test_an_old_run_has_a_report(run_id: str, root: Path) -> None:
    page = root.parent / "report.html"
    assert cli.main(["report", "--all", run_id, "-o", str(page), "--runs", str(root)]) == 0
    text, summary = page.read_text(), EXPECTED["runs"][run_id]
    for said in (run_id, summary["strategy"], summary["compressor"], summary["topo"], summary["verdict"]):
        assert said in text, f"the report of {run_id} does not say {said}"


@pytest.mark.parametrize("run_id", RUN_IDS)
def test_the_spec_of_an_old_run_is_read_and_keeps_its_hash(run_id: str) -> None:
    spec, expected = RunSpec.from_json(read(f"runs/{run_id}/spec.json")), EXPECTED["runs"][run_id]
    assert spec.hash == expected["spec_hash"]
    assert (spec.workers, spec.seed, spec.steps) == (expected["workers"], expected["seed"], expected["steps"])
