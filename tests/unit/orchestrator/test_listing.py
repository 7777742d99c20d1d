"""`list` survives any directory; `clean` takes run ids and nothing else."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from testbed.core import rundir
from testbed.core.errors import InputError
from testbed.core.records import empty_summary
from testbed.core.rundir import RunDir
from testbed.orchestrator import cli, listing
from testbed.orchestrator.cleanup_command import clean
from testbed.orchestrator.config import compose

RUN = "20260101T000000Z-wan1g-ddp-none-0123abcd"


@pytest.fixture(autouse=True)
def runtime(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rundir, "RUNTIME_ROOT", tmp_path / "run")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    path = tmp_path / "runs"
    path.mkdir()
    return path


def finished(root: Path, run_id: str, **values: Any) -> Path:
    path = root / run_id
    path.mkdir()
    summary = {
        **empty_summary(),
        "run_id": run_id,
        "status": "completed",
        "verdict": "valid",
        "topo": "wan1g",
        **values,
    }
    (path / "summary.json").write_text(json.dumps(summary))
    return path


def status(root: Path, name: str) -> str:
    return next(str(row["status"]) for row in listing.read_runs(root) if row["run_id"] == name)


def test_a_finished_run_shows_its_summary(root: Path) -> None:
    metric = {"name": "accuracy", "value": 0.98, "best": 0.98, "target": None, "time_to_target_s": None}
    finished(root, RUN, metric=metric, bytes={"wire_wan": 5}, time_s=3.0)
    (row,) = listing.read_runs(root)
    assert (row["status"], row["metric"], row["wire_wan"], row["time_s"]) == ("completed", 0.98, 5, 3.0)


def test_a_run_without_summary_is_running_or_killed(root: Path) -> None:
    run = RunDir(root / RUN)
    run.path.mkdir()
    run.spec.write_text(json.dumps(compose([]).to_json()))
    assert status(root, RUN) == "killed"
    assert listing.read_runs(root)[0]["topo"] == "wan1g"
    with run.held():
        assert status(root, RUN) == "running"


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "7", '{"status": null}', '{"status": "completed", "bytes": 7}', "\x00"]
)
def test_a_damaged_summary_is_named_and_nothing_breaks(root: Path, text: str) -> None:
    (root / RUN).mkdir()
    (root / RUN / "summary.json").write_text(text)
    finished(root, RUN.replace("2026", "2027"))
    assert status(root, RUN).startswith("damaged")
    assert status(root, RUN.replace("2026", "2027")) == "completed"


def test_foreign_entries_are_named(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (root / "[bold]notes").mkdir()
    (root / "file.txt").write_text("x")
    (root / RUN).symlink_to("/etc")
    (root / ".hidden").mkdir()
    assert [row["status"].split(":")[0] for row in listing.read_runs(root)] == ["foreign"] * 3
    assert cli.main(["list", "--runs", str(root)]) == 0
    assert "[bold]" in capsys.readouterr().out


def test_list_as_json_and_of_nothing(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["list", "--runs", str(root / "none"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == []
    finished(root, RUN)
    assert cli.main(["list", "--runs", str(root), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)[0]["run_id"] == RUN


@pytest.mark.parametrize("name", ["..", "/etc", f"runs/{RUN}", f"{RUN}/../x", "", ".", f"{RUN}\n", "notes"])
def test_clean_refuses_what_is_no_run_id(root: Path, name: str) -> None:
    kept = finished(root, RUN)
    with pytest.raises(InputError, match="never paths"):
        clean([RUN, name], root)
    assert kept.exists()


def test_clean_refuses_a_link_and_a_living_run(root: Path) -> None:
    (root / RUN).symlink_to("/etc")
    with pytest.raises(InputError, match="not a directory of its own"):
        clean([RUN], root)
    (root / RUN).unlink()
    finished(root, RUN)
    with RunDir(root / RUN).held(), pytest.raises(InputError, match="alive"):
        clean([RUN], root)


def test_clean_removes_the_run_and_only_it(root: Path) -> None:
    gone, kept = finished(root, RUN), finished(root, RUN.replace("2026", "2027"))
    assert clean([RUN, RUN], root) == [f"{RUN}: removed"]
    assert not gone.exists() and kept.exists()
