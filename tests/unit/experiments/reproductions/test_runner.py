"""In which order runs are made, which of them once more, and that the machine is held meanwhile."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from experiments.reproductions import runner
from experiments.reproductions.runner import Runner
from experiments.reproductions.runs import TrialRequest, ask_all
from testbed.core.errors import Interrupted, MachineError, RunError
from testbed.core.record.run_directory import RunDir
from testbed.orchestrator.machine import lock
from testbed.orchestrator.machine.lock import MachineLock, machine_lock
from tests.unit.experiments.reproductions.fake_runs import make_run, trial

NEW, OLD, SLOW = ask_all([trial(arm=arm) for arm in ("new", "old", "slow")])
PREDICTED = ask_all([trial(kind="simulated", seconds=3.0)])
End = str | Exception
Ends = Callable[..., list[str]]


@pytest.fixture
def ends(runs: Path, monkeypatch: pytest.MonkeyPatch) -> Ends:
    """Puts in the place of runs these verdicts and errors, one after another; the arms that were made, in order."""

    def put(*given: End) -> list[str]:
        left, made = list(given), []

        def make(asked: TrialRequest, runs_root: Path, *, machine: MachineLock | None, most_s: float | None) -> RunDir:
            made.append(asked.trial.arm)
            end = left.pop(0)
            if isinstance(end, Exception):
                raise end
            return make_run(runs_root, asked.trial, verdict=end)

        monkeypatch.setattr(runner, "make", make)
        return made

    return put


@pytest.fixture
def told() -> list[str]:
    return []


@pytest.fixture
def held(runs: Path, told: list[str]) -> Runner:
    return Runner(runs, None, told.append)


def test_what_decides_nothing_or_fails_is_made_once_more_after_the_others(
    ends: Ends, held: Runner, told: list[str]
) -> None:
    made = ends("invalid", RunError("it broke"), "suspect", "valid", "valid", "suspect")
    assert held.all([NEW, OLD, SLOW], None) == []
    assert made == ["new", "old", "slow", "new", "old", "slow"]
    assert [line.split()[0] for line in told] == ["1/3", "2/3", "3/3", "again", "again", "again"]
    assert told[1].endswith("(old): failed") and "suspect" in told[2]


def test_what_fails_twice_is_a_failure_and_what_is_invalid_twice_is_a_run(ends: Ends, held: Runner) -> None:
    made = ends("invalid", RunError("first"), "invalid", RunError("it broke", "badly"))
    faults = [f"{OLD.trial.label}: it broke", f"{OLD.trial.label}: badly"]
    assert held.all([NEW, OLD], None) == faults
    assert made == ["new", "old", "new", "old"]


def test_none_is_begun_that_would_end_too_late(ends: Ends, held: Runner, told: list[str]) -> None:
    long = ask_all([trial(arm="slow", seconds=50.0)])
    made = ends("valid")
    assert held.all([*long, NEW], 20.0) == [] and made == ["new"]
    assert told[-1] == f"left for the next call, since 20 s would not do: {long[0].trial.label}"


def test_there_may_be_no_time_to_make_one_once_more(ends: Ends, held: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    began_s, passed = time.monotonic(), iter((0.0, 0.0, 0.0, 15.0))
    monkeypatch.setattr(runner.time, "monotonic", lambda: began_s + next(passed))
    made = ends(RunError("it broke"))
    assert held.all([NEW], 20.0) == [f"{NEW.trial.label}: it broke"] and made == ["new"]


@pytest.mark.parametrize("end", [MachineError("no room"), Interrupted("stopped")])
def test_a_machine_that_cannot_and_a_stop_end_them_all(ends: Ends, held: Runner, end: RunError) -> None:
    made = ends(end)
    with pytest.raises(type(end)):
        held.all([NEW, OLD], None)
    assert made == ["new"]


def test_the_machine_is_held_for_all_that_is_emulated(
    runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("MACHINE_LOCK", "SHARED_LOCK"):
        monkeypatch.setattr(lock, name, tmp_path / name)
    monkeypatch.setattr(runner.os, "geteuid", lambda: 0)
    with Runner.of([NEW], runs, print, share=False) as held:
        assert held.machine is not None
        with pytest.raises(MachineError, match="another run"), machine_lock(share=False):
            pass
        with pytest.raises(MachineError, match="another run"), Runner.of([NEW], runs, print, share=False):
            pass
        with Runner.of(PREDICTED, runs, print, share=False) as other:
            assert other.machine is None
    with machine_lock(share=False):
        pass


def test_emulating_needs_root(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner.os, "geteuid", lambda: 1000)
    with pytest.raises(MachineError, match="use sudo"), Runner.of([NEW], runs, print, share=False):
        pass
