"""What a run's end prints: a table, three words, or one JSON object; the run itself is another test's."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from testbed.core.record.run_directory import RunDir
from testbed.core.record.summary import empty_summary
from testbed.orchestrator.cli.main import main
from testbed.orchestrator.config.config import compose
from testbed.orchestrator.run import run_command

RUN_ID = "20260101T000000Z-wan1g-ddp-none-0123abcd"


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[dict[str, Any]]:
    """What `supervise` was called with; it makes no run, and ends with what `summary` below says."""
    calls: list[dict[str, Any]] = []
    summary = empty_summary() | {
        "run_id": RUN_ID,
        "status": "completed",
        "verdict": "suspect",
        "reasons": ["a\x1b[0mb"],
    }

    def supervise(spec: object, **flags: Any) -> SimpleNamespace:
        calls.append(flags)
        sys.stderr.write("a stage\n")
        return SimpleNamespace(run=RunDir(tmp_path / "my runs" / RUN_ID), summary=summary, exit_status=0)

    monkeypatch.setitem(sys.modules, "testbed.orchestrator.run.supervisor", SimpleNamespace(supervise=supervise))
    monkeypatch.setattr(run_command, "checked_spec", lambda resolved, runs_root, rights, **_: compose([]))
    return calls


def test_quiet_is_one_line_a_script_can_read(
    asked: list[dict[str, Any]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["run", "--quiet", "--runs", str(tmp_path)]) == 0
    captured = capsys.readouterr()
    assert captured.out == f"{RUN_ID} suspect {tmp_path / 'my runs' / RUN_ID}\n"
    assert captured.err == "a stage\nlonghaul: a?[0mb\n", "why it is suspect is no result"
    assert asked[0]["quiet"] is True


def test_json_is_one_object_and_nothing_else_on_standard_output(
    asked: list[dict[str, Any]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["run", "--json", "--runs", str(tmp_path)]) == 0
    captured = capsys.readouterr()
    assert json.loads(captured.out)["run_id"] == RUN_ID
    assert captured.err == "a stage\n"
    assert (asked[0]["quiet"], asked[0]["display_fd"]) == (False, 2), "the display goes on, on standard error"
    assert main(["run", "--json", "--quiet", "--runs", str(tmp_path)]) == 0
    assert json.loads(capsys.readouterr().out)["run_id"] == RUN_ID
    assert asked[1]["quiet"] is True


def test_otherwise_a_table(asked: list[dict[str, Any]], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "--runs", str(tmp_path)]) == 0
    out = capsys.readouterr().out
    assert "completed, suspect" in out and "a?[0mb" in out and "run directory:" in out
    assert (asked[0]["quiet"], asked[0]["display_fd"]) == (False, 1)


@pytest.mark.parametrize(("at", "is_said"), [("599 s", False), ("10 min", True), ("500000 s", True)])
def test_a_first_change_that_most_runs_do_not_reach_is_said_before(
    asked: list[dict[str, Any]],
    at: str,
    is_said: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(run_command, "checked_spec", lambda resolved, *_, **__: resolved.spec)
    assert main(["run", f"events=[{{at: {at}, set: all, rate: 50%}}]", "topo=wan100m", "--runs", str(tmp_path)]) == 0
    assert ("events: the first change is due" in capsys.readouterr().err) == is_said
