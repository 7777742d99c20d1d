"""First runs: what is kept of how a command ends. The command is a script of a few lines, in a folder like a clone."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from experiments.common import sources
from experiments.common.first_try import command
from testbed.core.errors import (
    EXIT_COMPLETED,
    EXIT_FAILED,
    EXIT_INPUT,
    EXIT_INVALID,
    EXIT_MACHINE,
    MachineError,
    RunError,
)

SUMMARY = {
    "run_id": "20261128T000000Z-wan1g-ddp-none-00000000",
    "status": "completed",
    "verdict": "valid",
    "reasons": [],
    "dilation": 2.0,
    "steps": 2,
    "time_s": 3.0,
    "step_time_s": {"p50": 1.5},
}
EVENTS = [
    {"event": "step", "t_s": 1.0, "rank": rank, "step": step, "loss": 1.0 / (step + rank)}
    for rank in (0, 1)
    for step in (1, 2)
]


@pytest.fixture(autouse=True)
def _free(monkeypatch: pytest.MonkeyPatch) -> None:
    """No run of these tests is one that others would have to wait for."""
    monkeypatch.setattr(command, "require_free", lambda: None)


def clone(
    folder: Path, status: int, said: str = "", complaint: str = "", events: list[dict[str, Any]] = EVENTS
) -> Path:
    """Return a folder whose Python leaves events where `--runs` says, prints, and ends with a status."""
    python = folder / ".venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    lines = "".join(json.dumps(event) + "\n" for event in events)
    python.write_text(
        f"#!{sys.executable}\n"
        "import pathlib, sys\n"
        f"run = pathlib.Path(sys.argv[sys.argv.index('--runs') + 1]) / {SUMMARY['run_id']!r}\n"
        "run.mkdir()\n"
        f"(run / 'events.jsonl').write_text({lines!r})\n"
        f"sys.stdout.write({said!r})\n"
        f"sys.stderr.write({complaint!r})\n"
        f"sys.exit({status})\n"
    )
    python.chmod(0o755)
    profiles = folder / ".cache" / "profiles"
    profiles.mkdir(parents=True)
    (profiles / "one.json").write_text("{}")
    return folder


def test_a_first_run_forgets_what_was_measured_and_keeps_what_the_summary_says(tmp_path: Path) -> None:
    said = {**SUMMARY, "attempts": 2, "tried_dilations": [1.5, 2.0], "left_out": {"count": 3}}
    ours = clone(tmp_path, EXIT_COMPLETED, json.dumps(said))
    found = command.first_run(["topo=wan1g"], clone=ours)
    assert not (ours / ".cache" / "profiles").exists()
    assert command.is_valid(found) and command.was_restarted(found)
    assert (found["dilation"], found["step_s"], found["training_s"], found["left_out"]) == (2.0, 1.5, 6.0, 3)
    assert found["last_loss"] == 0.5 and found["wall_s"] > 0


def test_losses_are_equal_digit_for_digit_or_not(tmp_path: Path) -> None:
    other = [{**EVENTS[0], "loss": 1.0 + 1e-15}, *EVENTS[1:]]
    hashes = [
        command.first_run([], clone=clone(tmp_path / str(index), EXIT_COMPLETED, json.dumps(SUMMARY), events=events))[
            "losses_hash"
        ]
        for index, events in enumerate((EVENTS, EVENTS[::-1], other))
    ]
    assert hashes[0] == hashes[1] != hashes[2]


@pytest.mark.parametrize(
    ("status", "said", "verdict"),
    [
        (EXIT_INVALID, {**SUMMARY, "verdict": "invalid"}, "invalid"),
        (EXIT_COMPLETED, {**SUMMARY, "verdict": "suspect"}, "suspect"),
        (EXIT_FAILED, {**SUMMARY, "status": "failed", "time_s": None}, "failed"),
        (EXIT_FAILED, None, "failed"),
        (EXIT_INPUT, None, "refused"),
    ],
)
def test_whatever_is_not_valid_counts_so(
    tmp_path: Path, status: int, said: dict[str, Any] | None, verdict: str
) -> None:
    ours = clone(tmp_path, status, json.dumps(said) if said else "", "dilation=auto: no k fits\n")
    found = command.first_run([], clone=ours)
    assert found["verdict"] == verdict and not command.is_valid(found) and not command.was_restarted(found)
    assert said or found["reasons"] == ["dilation=auto: no k fits"]


def test_another_run_is_waited_for_but_not_for_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tries = iter([MachineError("busy"), MachineError("busy")])

    def require_free() -> None:
        if (error := next(tries, None)) is not None:
            raise error

    monkeypatch.setattr(command, "require_free", require_free)
    monkeypatch.setattr(command, "POLL_S", 0.01)
    assert command.is_valid(command.first_run([], clone=clone(tmp_path, EXIT_COMPLETED, json.dumps(SUMMARY))))
    tries = iter([MachineError("busy")] * 1000)
    monkeypatch.setattr(command, "WAIT_S", 0.05)
    with pytest.raises(MachineError, match="busy"):
        command.wait_for_the_machine()


def test_a_machine_that_lacks_something_says_nothing_of_the_run(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="another run is going on"):
        command.first_run([], clone=clone(tmp_path, EXIT_MACHINE, complaint="another run is going on this machine\n"))


def test_a_run_that_does_not_end_is_no_valid_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ours = clone(tmp_path, EXIT_COMPLETED, json.dumps(SUMMARY))
    python = ours / ".venv" / "bin" / "python"
    python.write_text(python.read_text().replace("sys.exit", "__import__('time').sleep(60); sys.exit"))
    monkeypatch.setattr(command, "LIMIT_S", 0.2)
    assert command.first_run([], clone=ours)["verdict"] == "too long"


def test_the_load_ends_by_itself_and_with_the_run() -> None:
    load = subprocess.run(
        [sys.executable, str(sources.file("experiments.common.first_try.half_core")), "0.1"], check=True, timeout=30
    )
    assert load.returncode == 0
    with command.half_core(60):
        time.sleep(0)
    with pytest.raises(RunError, match="the load ended"), command.half_core(0):
        time.sleep(0.5)
