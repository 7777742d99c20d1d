"""Runs of a sweep on this machine, one after the other, up to what is built of them."""

from __future__ import annotations

import errno
import os
import signal
from pathlib import Path

import pytest

from testbed.core.errors import InputError, Interrupted, MachineError
from testbed.core.record.run_directory import RunDir
from testbed.core.spec.run_spec import RunSpec
from testbed.orchestrator.executors.executor import Local
from testbed.orchestrator.machine import provenance
from testbed.orchestrator.machine.signals import Stop
from testbed.orchestrator.run_store.ended import KeptRuns
from testbed.orchestrator.search.sweep.display import Display
from testbed.orchestrator.search.sweep.estimates import UNKNOWN, Estimate
from testbed.orchestrator.search.sweep.scheduler import SweepScheduler
from testbed.orchestrator.search.sweep.specs import RunRequest
from testbed.orchestrator.search.sweep.status import DONE, TO_MAKE, standing
from tests.unit.orchestrator.made_runs import asked_of, grid
from tests.unit.orchestrator.supervised import stand_ins

FULL = OSError(errno.ENOSPC, "No space left on device")


@pytest.fixture(scope="module")
def asked() -> list[RunRequest]:
    return asked_of(grid("seed=range(3)", "metrics_port=0"))


def follow(asked: list[RunRequest], runs: Path) -> SweepScheduler:
    kept = KeptRuns(runs)
    found = [standing(one, kept) for one in asked]
    expected = {one.spec.hash: Estimate(None, UNKNOWN) for one in asked}
    with Local(runs, share=False) as place, Display("made", found, on_error_stream=False) as display:
        scheduler = SweepScheduler(kept, expected, display)
        scheduler.follow(found, place)
    return scheduler


def states(asked: list[RunRequest], runs: Path) -> list[str]:
    return [standing(one, KeptRuns(runs)).state for one in asked]


@pytest.mark.parametrize("number", Stop.NUMBERS)
def test_a_signal_while_a_run_is_sealed_keeps_it_and_begins_no_other(
    asked: list[RunRequest], runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: signal.Signals
) -> None:
    stand_ins(monkeypatch, tmp_path, sealing=lambda run: os.kill(os.getpid(), number))
    scheduler = follow(asked, runs)
    assert isinstance(scheduler.error, Interrupted) and scheduler.error.faults == (f"stopped by {number.name}",)
    assert states(asked, runs) == [DONE, TO_MAKE, TO_MAKE]


def test_a_run_that_is_refused_when_its_turn_comes_is_a_failed_attempt_and_the_others_are_made(
    asked: list[RunRequest], runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(spec: RunSpec) -> None:
        if spec.seed == 0:
            raise InputError("dilation=auto: none does", "max_wall_s=1: takes 2 s")

    stand_ins(monkeypatch, tmp_path, measuring=refuse)
    scheduler = follow(asked, runs)
    assert scheduler.error is None and states(asked, runs) == [TO_MAKE, DONE, DONE]
    assert scheduler.unrecorded == {asked[0].spec.hash: ["dilation=auto: none does; max_wall_s=1: takes 2 s"] * 2}


def test_a_full_disk_ends_it_and_says_what_is_not_written(
    asked: list[RunRequest], runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sealed: list[RunDir] = []

    def fill(run: RunDir) -> None:
        sealed.append(run)
        raise FULL

    stand_ins(monkeypatch, tmp_path, sealing=fill)
    scheduler = follow(asked, runs)
    assert isinstance(scheduler.error, MachineError) and len(sealed) == 1
    assert str(sealed[0].path) in str(scheduler.error) and "No space left on device" in str(scheduler.error)


def test_code_that_is_edited_meanwhile_ends_it_before_the_next_run(
    asked: list[RunRequest], runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = provenance.code_hash()

    def edit(run: RunDir) -> None:
        monkeypatch.setattr(provenance, "code_hash", lambda **_: "f" * 16)

    stand_ins(monkeypatch, tmp_path, sealing=edit)
    scheduler = follow(asked, runs)
    assert (
        isinstance(scheduler.error, MachineError)
        and before in str(scheduler.error)
        and "f" * 16 in str(scheduler.error)
    )
    assert len(list(runs.glob("*/summary.json"))) == 1


def test_code_that_is_edited_during_the_last_run_is_no_error(
    asked: list[RunRequest], runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand_ins(
        monkeypatch, tmp_path, sealing=lambda run: monkeypatch.setattr(provenance, "code_hash", lambda **_: "f" * 16)
    )
    assert follow(asked[:1], runs).error is None
