"""The archive holds every finished run, once, with its first step at the epoch, and nothing else."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from testbed.analysis.__main__ import main
from testbed.analysis.archive import archive
from testbed.analysis.archive.archive import update
from testbed.core.errors import RunError
from testbed.core.record.run_directory import RunDir
from testbed.core.server_lock import is_served
from tests.unit.analysis.archived import (
    STEPS,
    ask,
    assert_whole,
    copies,
    dumped,
    finished_run,
    require_prometheus,
    run_id,
    seal,
    served,
    value,
)

pytestmark = pytest.mark.timeout(300)


@pytest.fixture(autouse=True)
def _prometheus() -> None:
    require_prometheus()


def snapshot(data: Path) -> dict[str, int]:
    return {str(path.relative_to(data)): path.stat().st_mtime_ns for path in data.rglob("*") if path.is_file()}


@pytest.mark.tier("all")
def test_300_runs_are_archived_and_answer(runs: Path, output: Path, tmp_path: Path) -> None:
    copies(finished_run(runs), 300)
    done = update(runs, output)
    with served(done.data, tmp_path) as server:
        assert value(server, "count(longhaul_run_info)", 2.0) == 300
        assert value(server, 'count(longhaul_run_info{workers="4",verdict="valid"})', 2.0) == 300
        steps = "sum(longhaul_train_steps_total)"
        assert [value(server, steps, at_s) for at_s in (0.0, STEPS)] == [0, 300 * 4 * STEPS]
        assert value(server, "count(longhaul_run_info)", STEPS + 60.0) is None, "a finished run is not drawn on"
    assert (done.runs, done.added, done.rebuilt, done.remarks) == (300, 300, None, [])


def test_every_sample_is_that_of_the_run_shifted(runs: Path, output: Path, tmp_path: Path) -> None:
    run = finished_run(runs)
    done = update(runs, output)
    assert_whole(done, runs, 1)
    own = tmp_path / "own"
    command = ["promtool", "tsdb", "create-blocks-from", "openmetrics", str(run.openmetrics), str(own)]
    subprocess.run(command, check=True, capture_output=True)
    shift_ms = 1_577_836_800_000 - 1_735_787_050_250
    moved = set()
    for line in dumped(own):
        head, sample, time_ms = line.rsplit(" ", 2)
        moved.add(f"{head} {sample} {int(time_ms) + shift_ms}")
    assert dumped(done.data) == moved


def test_a_second_call_does_nothing(runs: Path, output: Path) -> None:
    copies(finished_run(runs), 3)
    update(runs, output)
    before = snapshot(output)
    done = update(runs, output)
    assert (done.runs, done.added, done.rebuilt) == (3, 0, None)
    assert {k: v for k, v in snapshot(output).items() if k != "lock"} == {
        k: v for k, v in before.items() if k != "lock"
    }


def test_only_what_is_new_is_added(runs: Path, output: Path) -> None:
    copies(finished_run(runs), 3)
    first = update(runs, output)
    before = snapshot(first.data)
    finished_run(runs, 7)
    done = update(runs, output)
    assert (done.added, done.rebuilt, done.blocks) == (1, None, first.blocks + 1)
    assert before.items() <= snapshot(done.data).items()
    assert_whole(done, runs, 4)


def test_a_run_that_has_gone_goes(runs: Path, output: Path) -> None:
    copies(finished_run(runs), 3)
    update(runs, output)
    shutil.rmtree(runs / run_id(1))
    done = update(runs, output)
    assert done.rebuilt == f"{run_id(1)} has gone"
    assert_whole(done, runs, 2)
    for path in runs.iterdir():
        shutil.rmtree(path)
    assert_whole(update(runs, output), runs, 0)


def test_a_run_that_has_changed_is_archived_anew(runs: Path, output: Path) -> None:
    copies(finished_run(runs), 2)
    update(runs, output)
    changed = RunDir(runs / run_id(1))
    changed.openmetrics.unlink()
    seal(changed, verdict="suspect")
    done = update(runs, output)
    assert done.rebuilt == f"{run_id(1)} has changed"
    assert_whole(done, runs, 2)
    assert {line.count('verdict="suspect"') for line in dumped(done.data) if "longhaul_run_info" in line} == {0, 1}


def test_all_is_made_anew_on_request_and_for_another_table(
    runs: Path, output: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copies(finished_run(runs), 2)
    update(runs, output)
    assert update(runs, output, rebuild=True).rebuilt == "asked for"
    monkeypatch.setattr(archive, "form", lambda: "another")
    done = update(runs, output)
    assert done.rebuilt == "it is of another version"
    assert_whole(done, runs, 2)


def test_an_archive_that_is_served_takes_new_runs_and_is_not_pulled_away(
    runs: Path, output: Path, tmp_path: Path
) -> None:
    copies(finished_run(runs), 2)
    first = update(runs, output)
    with served(first.data, tmp_path) as server:
        assert is_served(first.data)
        finished_run(runs, 5)
        assert update(runs, output).added == 1
        shutil.rmtree(runs / run_id(0))
        with pytest.raises(RunError, match=r"has gone\), and is being served: end its server first"):
            update(runs, output)
        assert ask(server, "vector(1)")
    assert not is_served(first.data)
    done = update(runs, output)
    assert_whole(done, runs, 2)
    with served(done.data, tmp_path) as server:
        assert value(server, "count(longhaul_run_info)", 2.0) == 2


def test_the_command_says_what_it_did(runs: Path, output: Path, capsys: pytest.CaptureFixture[str]) -> None:
    finished_run(runs)
    (runs / "notes.txt").write_text("mine")
    arguments = ["archive", str(runs), "--output", str(output)]
    assert main(arguments) == 0
    said = capsys.readouterr()
    assert said.out.startswith("1 runs (1 new), ") and said.err == "notes.txt: left out: not a run of Longhaul\n"
    assert main([*arguments, "--rebuild", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["runs"], told["added"], told["rebuilt"]) == (1, 1, "asked for")


def test_where_it_cannot_be_written_is_said(runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    finished_run(runs)
    (tmp_path / "file").write_text("")
    assert main(["archive", str(runs), "--output", str(tmp_path / "file" / "archive")]) == 4
    assert "cannot be written" in capsys.readouterr().err
