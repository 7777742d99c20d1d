"""`longhaul sweep` as a user calls it, up to the runs themselves, which another test makes."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from testbed.core.errors import LonghaulError, MachineError, RunError
from testbed.core.record import run_directory
from testbed.core.spec.run_spec import RunSpec
from testbed.orchestrator.cli.main import main
from testbed.orchestrator.config.grammar.offers import Offer
from testbed.orchestrator.executors import registry
from testbed.orchestrator.search.sweep import estimates, specs, sweep_command
from testbed.orchestrator.search.sweep.estimates import UNKNOWN, Estimate, RunsRefused
from testbed.orchestrator.search.sweep.specs import RunRequest
from tests.unit.orchestrator.made_runs import FIXED, Place, asked_of, grid, make_run

AXES = ("compressor=none,topk", *FIXED)
End = dict[str, Any] | LonghaulError


@pytest.fixture
def place(runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Place]:
    """A place that ends every run alike is put where this machine was; the machine and plug-ins are not looked at."""
    monkeypatch.setattr(run_directory, "RUNTIME_ROOT", tmp_path / "run")
    monkeypatch.setattr(specs, "machine_checks", lambda resolved, runs_root: [])
    monkeypatch.setattr(specs, "check_all", lambda asked: [{"faults": [], "computes": True} for _ in asked])
    monkeypatch.setattr(
        sweep_command, "estimates", lambda asked, *_, **__: {one.spec.hash: Estimate(None, UNKNOWN) for one in asked}
    )

    def put(ends: Callable[[int, RunSpec], End]) -> Place:
        found = Place(runs, ends)
        monkeypatch.setattr(registry, "executor", lambda *_, **__: found)
        return found

    return put


def test_all_faults_of_all_runs_at_once_and_nothing_left(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["topo=lan,mars", "compressor=topk", "compressor.density=2", "steps=0,1", "seed=range(2)"]
    assert main(["sweep", "--plan", "--runs", str(tmp_path / "runs"), *words]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert sum("topo=mars: unknown topology" in line for line in lines) == 1
    assert sum("steps=0: must be at least 1" in line for line in lines) == 1
    (density,) = [line for line in lines if "compressor.density=2" in line and "must be" in line]
    assert density.startswith("longhaul: compressor.density=2"), "of all runs alike: no run is named"
    (mars,) = [line for line in lines if "topo=mars: unknown" in line]
    assert mars.startswith("longhaul: topo=mars steps=0 seed=0 and 3 more: ")
    assert not list(tmp_path.iterdir())


@pytest.mark.tier("all")
def test_a_machine_is_asked_about_every_runtime_of_a_sweep(
    place: Callable[..., Place], runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place(lambda number, spec: {})
    looked: list[str] = []
    monkeypatch.setattr(specs, "machine_checks", lambda one, runs_root: looked.append(one.settings["runtime"]) or [])
    assert main(["sweep", "--runs", str(runs), "runtime=docker,runc", "seed=range(2)", *FIXED]) == 0
    assert sorted(looked) == ["docker", "runc"]


@pytest.mark.parametrize("name", ["rya", "slrum", "locla"])
def test_executors_that_are_not_there_are_refused_by_name(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sweep", "smoke", "--executor", name]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert f"executor={name}: " in line and "local" in line


def test_a_plan_says_what_is_there_and_makes_nothing(
    place: Callable[..., Place], runs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    none, _ = asked_of(grid("compressor=none,topk"))
    made = make_run(runs, none.spec)
    there = place(lambda number, spec: {})
    assert main(["sweep", "--dry-run", "--runs", str(runs), *AXES]) == 0
    out = capsys.readouterr().out.splitlines()
    assert out[:2] == [f"compressor=none: done, {made.run_id}", "compressor=topk: to make"]
    assert "1 of 2 runs are there; to make: 1 of unknown length" in out[2]
    assert main(["sweep", "--plan", "--json", "--runs", str(runs), *AXES]) == 0
    told = json.loads(capsys.readouterr().out)["runs"]
    assert [(one["values"]["compressor"], one["state"], one["run_id"]) for one in told] == [
        ("none", "done", made.run_id),
        ("topk", "to make", None),
    ]
    assert there.begun == [] and [path.name for path in runs.iterdir()] == [made.run_id]


@pytest.mark.parametrize(
    ("end", "status", "outcome"),
    [
        ({"verdict": "suspect"}, 0, "1 suspect"),
        ({"verdict": "invalid"}, 5, "1 invalid"),
        ({"status": "failed"}, 4, "1 failed"),
        (MachineError("no port is free"), 3, "1 not made"),
    ],
)
def test_the_exit_status_says_what_became_of_all(
    place: Callable[..., Place],
    runs: Path,
    capsys: pytest.CaptureFixture[str],
    end: End,
    status: int,
    outcome: str,
) -> None:
    place(lambda number, spec: end if spec.compressor.name == "topk" else {})
    assert main(["sweep", "--runs", str(runs), *AXES]) == status
    captured = capsys.readouterr()
    rows = [line for line in captured.out.splitlines() if line.startswith(("ddp       none ", "ddp       topk "))]
    assert len(rows) == 2 and "1 valid" in rows[0] and outcome in rows[1]
    (folder,) = (runs / ".sweeps").iterdir()
    assert str(folder) in captured.err and (folder / "results.csv").exists()
    assert ("given up after 2 attempts" in captured.err) == (outcome in ("1 invalid", "1 failed"))
    assert isinstance(end, dict) or "no port is free" in captured.err


@pytest.mark.parametrize("ending", [None, MachineError("no port is free")])
def test_a_table_that_cannot_be_written_hides_not_why_it_ended(
    place: Callable[..., Place],
    runs: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    ending: MachineError | None,
) -> None:
    def fill(*_: object) -> None:
        raise RunError("its table cannot be made: the disk is full")

    place(lambda number, spec: ending or {})
    monkeypatch.setattr(sweep_command.results, "write", fill)
    assert main(["sweep", "--runs", str(runs), *AXES]) == (4 if ending is None else 3)
    said = capsys.readouterr().err
    assert "the disk is full" in said and (ending is None or "no port is free" in said)


@pytest.mark.tier("all")
def test_what_was_given_up_is_tried_again_when_told(
    place: Callable[..., Place], runs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place(lambda number, spec: {"verdict": "invalid"})
    assert main(["sweep", "--runs", str(runs), *FIXED]) == 5
    there = place(lambda number, spec: {})
    assert main(["sweep", "--runs", str(runs), *FIXED]) == 5 and there.begun == []
    assert "1 given up (--retry tries them again); nothing to make" in capsys.readouterr().err
    assert main(["sweep", "--retry", "--json", "--runs", str(runs), *FIXED]) == 0 and len(there.begun) == 1
    content = json.loads(capsys.readouterr().out)
    assert [row["outcomes"] for row in content["rows"]] == [{"valid": 1}]
    assert [(one["outcome"], len(one["missed"])) for one in content["points"]] == [("valid", 2)]


@pytest.fixture
def half_hours(place: Callable[..., Place], monkeypatch: pytest.MonkeyPatch) -> Place:
    """A place where each run is expected to take half an hour."""
    there = place(lambda number, spec: {})
    each = Estimate(1800.0, estimates.EARLIER)
    monkeypatch.setattr(sweep_command, "estimates", lambda asked, *_, **__: {one.spec.hash: each for one in asked})
    return there


def test_a_budget_leaves_what_would_end_too_late(
    half_hours: Place, runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "short.yaml"
    path.write_text("axes:\n" + "".join(f"  - {text}\n" for text in AXES) + "max_hours: 0.2\n")
    assert main(["sweep", "--runs", str(runs), str(path)]) == 4 and half_hours.begun == []
    said = capsys.readouterr().err
    assert "2 x 1800 s (by earlier runs) = about 60 minutes; none is begun that would end after 0.2 h" in said
    assert "left for the next call: 2 runs" in said


@pytest.mark.tier("all")
def test_a_budget_of_the_call_is_of_axes_alone_too_and_replaces_the_file_s(
    half_hours: Place, runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "short.yaml"
    path.write_text("axes:\n" + "".join(f"  - {text}\n" for text in AXES) + "max_hours: 9\n")
    for words in (AXES, (str(path),)):
        assert main(["sweep", "--runs", str(runs), "--max-hours", "0.2", *words]) == 4 and half_hours.begun == []
        said = capsys.readouterr().err
        assert "none is begun that would end after 0.2 h" in said and "left for the next call: 2 runs" in said
    assert main(["sweep", "--runs", str(runs), "--max-hours", "0.6", str(path)]) == 0 and len(half_hours.begun) == 2
    assert {folder.name.partition("-")[0] for folder in (runs / ".sweeps").iterdir()} == {"grid", "short"}


@pytest.mark.parametrize("hours", ["0", "-1", "inf", "nan", "two"])
def test_a_budget_that_is_no_positive_number_is_refused(hours: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sweep", "smoke", "--max-hours", hours]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert f"--max-hours: {hours}: must be a number above 0" in line


def test_a_budget_counts_from_the_beginning_of_the_call(
    place: Callable[..., Place],
    runs: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def measured(asked: list[RunRequest], *_: object, **__: object) -> dict[str, Estimate]:
        time.sleep(0.3)
        return {one.spec.hash: Estimate(0.0, estimates.PREDICTED) for one in asked}

    there = place(lambda number, spec: {})
    monkeypatch.setattr(sweep_command, "estimates", measured)
    path = tmp_path / "short.yaml"
    path.write_text("axes:\n" + "".join(f"  - {text}\n" for text in AXES) + f"max_hours: {0.25 / 3600}\n")
    assert main(["sweep", "--runs", str(runs), str(path)]) == 4 and there.begun == []
    assert "left for the next call: 2 runs" in capsys.readouterr().err


@pytest.mark.parametrize("fix", [False, True])
def test_fix_takes_what_helps_all_refused_runs_for_all_runs(
    place: Callable[..., Place],
    runs: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    *,
    fix: bool,
) -> None:
    """A row on another device than the rest would compare devices."""

    def estimated(asked: list[RunRequest], *_: object, **__: object) -> dict[str, Estimate]:
        need = {"none": 0.1, "topk": 0.3, "int8": 0.2}
        lacking = [need[one.spec.compressor.name] for one in asked if one.spec.device.name == "native"]
        if lacking:
            offers = [Offer({"device": "paced", "device.step_s": f"{step_s}"}, "slower") for step_s in lacking]
            raise RunsRefused("compressor=none: no", ["compressor=none: no; such"], [(one,) for one in offers])
        return {one.spec.hash: Estimate(1.0, estimates.PREDICTED) for one in asked}

    there = place(lambda number, spec: {})
    monkeypatch.setattr(sweep_command, "estimates", estimated)
    words = ["compressor=none,topk,int8", "device=native", *FIXED]
    assert main(["sweep", "--runs", str(runs), *(["--fix"] if fix else []), *words]) == (0 if fix else 2)
    begun = {(spec.device.name, spec.device.params.get("step_s")) for spec in there.begun}
    assert begun == ({("paced", 0.3)} if fix else set())
    said = capsys.readouterr().err
    assert ("no; --fix takes device=paced device.step_s=0.3 for all runs" in said) == fix
    assert len(there.begun) == (3 if fix else 0)


def test_fix_changes_no_axis(
    place: Callable[..., Place], runs: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def estimated(asked: list[RunRequest], *_: object, **__: object) -> dict[str, Estimate]:
        if any(one.spec.steps != 3 for one in asked):
            offers = (Offer({"device": "paced", "device.step_s": "1"}, "slower"), Offer({"steps": "3"}, "shorter"))
            raise RunsRefused("no", ["no; such"], [offers])
        return {one.spec.hash: Estimate(1.0, estimates.PREDICTED) for one in asked}

    there = place(lambda number, spec: {})
    monkeypatch.setattr(sweep_command, "estimates", estimated)
    words = ["topo=lan", "workers=2", "device=paced"]
    assert main(["sweep", "--fix", "--runs", str(runs), *words, "device.step_s=0.1,0.2", "steps=4"]) == 0
    assert [(spec.device.params["step_s"], spec.steps) for spec in there.begun] == [(0.1, 3), (0.2, 3)]
    assert main(["sweep", "--fix", "--runs", str(runs), *words, "device.step_s=0.1,0.2", "steps=4,5"]) == 2
    assert "longhaul: no; such" in capsys.readouterr().err
