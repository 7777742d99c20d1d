"""Which run is the session that was brought up, which are sessions at all, and what `exec` hands on."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import pytest

from testbed.core.errors import EXIT_MACHINE, RunError
from testbed.core.record import run_directory
from testbed.core.record.run_directory import RunDir, write_json
from testbed.core.record.summary import empty_summary
from testbed.core.spec.run_spec import RunSpec
from testbed.orchestrator.cli import session as session_commands
from testbed.orchestrator.cli.main import main
from testbed.orchestrator.config.config import compose
from testbed.orchestrator.machine import checks

FIRST, SECOND = "20260101T000000Z-lan-hand-none-aaaaaaaa", "20260101T000001Z-lan-hand-none-bbbbbbbb"


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(run_directory, "RUNTIME_ROOT", tmp_path / "runtime")
    monkeypatch.setattr(checks, "is_root", lambda: True)
    return tmp_path / "runs"


def make(runs: Path, run_id: str, spec: RunSpec | None = None, *events: str) -> RunDir:
    run = RunDir.create(runs, run_id)
    if spec is not None:
        write_json(run.spec, spec.to_json())
    run.events.write_text("".join(f'{{"t_s": 0, "event": "schedule", "what": "{what}"}}\n' for what in events))
    return run


class Process:
    """Ends after so many questions."""

    def __init__(self, polls: int) -> None:
        self.polls = polls

    def poll(self) -> int | None:
        self.polls -= 1
        return None if self.polls >= 0 else 4

    def communicate(self) -> tuple[str, None]:
        return "no luck\n", None


@pytest.fixture
def pipe() -> Iterator[tuple[IO[str], IO[str]]]:
    read, write = os.pipe()
    with os.fdopen(read) as reader, os.fdopen(write, "w") as writer:
        yield reader, writer


def test_up_waits_for_its_own_run_and_claims_no_other(runs: Path, pipe: tuple[IO[str], IO[str]]) -> None:
    reader, writer = pipe
    make(runs, FIRST, None, "network", "go")
    second = make(runs, SECOND, None, "network")
    process: Any = Process(3)
    with pytest.raises(RunError, match="did not come up: no luck"):
        session_commands._wait_until_up(process, runs, reader)
    writer.write(SECOND)
    writer.close()
    second.events.write_text('{"t_s": 0, "event": "schedule", "what": "go"}\n')
    process = Process(3)
    assert session_commands._wait_until_up(process, runs, reader).run_id == SECOND


def test_a_process_that_ends_without_a_run_says_why(runs: Path, pipe: tuple[IO[str], IO[str]]) -> None:
    pipe[1].close()
    process: Any = Process(3)
    with pytest.raises(RunError, match="no luck"):
        session_commands._wait_until_up(process, runs, pipe[0])


def test_a_session_is_known_by_its_spec_not_by_its_name(runs: Path) -> None:
    session = make(runs, "20260101T000000Z-lan-palm-none-aaaaaaaa", compose(["topo=lan", "workload=hand"]))
    training = make(runs, "20260101T000001Z-my-hand-made-ddp-none-bbbbbbbb", compose(["topo=lan"]))
    unwritten = make(runs, "20260101T000002Z-lan-hand-none-cccccccc")
    ended = make(runs, "20260101T000003Z-lan-hand-none-dddddddd", compose(["topo=lan", "workload=hand"]))
    with session.held(), training.held(), unwritten.held():
        assert [run.run_id for run in session_commands.sessions(runs)] == [session.run_id]
    assert not ended.is_alive()


@pytest.mark.parametrize(
    ("status", "verdict", "code"),
    [("completed", "valid", 0), ("completed", "suspect", 0), ("completed", "invalid", 5), ("failed", "invalid", 4)],
)
def test_down_ends_as_the_run_that_it_ends(
    runs: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    status: str,
    verdict: str,
    code: int,
) -> None:
    run = make(runs, FIRST)
    write_json(run.summary, empty_summary() | {"status": status, "verdict": verdict, "reasons": ["why"]})
    monkeypatch.setattr(session_commands, "down", lambda runs_root, run_id: run)
    assert main(["down", "--runs", str(runs)]) == code
    assert capsys.readouterr().out.splitlines()[:2] == [f"{FIRST} is down: {status}, {verdict}", "  why"]


def test_exec_hands_on_the_runs_id_and_little_of_the_callers(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name, value in (("SECRET_TOKEN", "x"), ("TERM", "xterm"), ("HOME", "/home/me"), ("LONGHAUL_NODE", "n")):
        monkeypatch.setenv(name, value)
    run = RunDir(tmp_path / FIRST)
    router = session_commands._environment(run, is_router=True)
    node = session_commands._environment(run, is_router=False)
    assert router["LONGHAUL_RUN"] == node["LONGHAUL_RUN"] == FIRST
    assert (router["HOME"], node["HOME"], node["TERM"]) == ("/home/me", "/tmp", "xterm")
    assert node["PATH"].startswith(f"{sys.prefix}/bin:")
    assert not {"SECRET_TOKEN", "LONGHAUL_NODE"} & (router.keys() | node.keys())


@pytest.mark.parametrize("words", [["exec", "oregon", "--", "true"], ["down"]])
def test_without_root_the_machine_lacks_something_and_the_cure_is_told(
    runs: Path, words: list[str], monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(checks, "is_root", lambda: False)
    assert main([words[0], "--runs", str(runs), *words[1:]]) == EXIT_MACHINE
    assert "run with sudo" in capfd.readouterr().err
