"""What becomes of jobs: losses, damage, machines that lack something, a disk that is full."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from testbed.core.errors import MachineError
from testbed.orchestrator.executors.remote_executor import MAX_LOSSES, Ended, NoRoomError, RemoteExecutor
from testbed.orchestrator.run_store.ended import KeptRuns
from testbed.orchestrator.search.sweep.display import Display
from testbed.orchestrator.search.sweep.estimates import UNKNOWN, Estimate
from testbed.orchestrator.search.sweep.scheduler import SweepScheduler
from testbed.orchestrator.search.sweep.specs import RunRequest
from testbed.orchestrator.search.sweep.status import DONE, standing
from tests.unit.orchestrator.executors.made_machines import Machines, full_disk, reply_of
from tests.unit.orchestrator.made_runs import asked_of, grid


def follow(asked: list[RunRequest], machines: Machines, runs: Path) -> tuple[SweepScheduler, list[str]]:
    kept = KeptRuns(runs)
    found = [standing(one, kept) for one in asked]
    each = {one.spec.hash: Estimate(None, UNKNOWN) for one in asked}
    with RemoteExecutor(machines, runs, share=False) as place, Display("made", found, on_error_stream=False) as display:
        scheduler = SweepScheduler(kept, each, display)
        scheduler.follow(found, place)
    return scheduler, [standing(one, KeptRuns(runs)).state for one in asked]


def test_what_is_lost_or_damaged_on_the_way_is_said_and_made_again(
    asked: list[RunRequest], runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def answer(number: int, request: Mapping[str, Any]) -> Mapping[str, Any]:
        if number == 1:
            return {"lost": "node 7 died"}
        reply = copy.deepcopy(reply_of(tmp_path / str(number), request))
        if number == 2:
            reply["archive"]["files"]["spec.json"]["zlib"] = b"half"
        return {"reply": reply}

    machines = Machines(answer)
    scheduler, states = follow(asked, machines, runs)
    assert states == [DONE] * 3 and scheduler.error is None and machines.begun == 5
    out = capsys.readouterr().out
    assert "seed=0: lost, to be made again: node 7 died" in out
    assert "seed=1: lost, to be made again: on the way from far: " in out and "spec.json: came back damaged" in out


def test_what_found_no_room_after_all_is_begun_later(asked: list[RunRequest], runs: Path, tmp_path: Path) -> None:
    machines = Machines(lambda number, request: {"reply": reply_of(tmp_path / str(number), request)})
    begin, refused = machines.begin, []

    def begin_later(request: Mapping[str, Any]) -> str:
        if len(refused) < 2:
            refused.append(request)
            raise NoRoomError
        return begin(request)

    machines.begin = begin_later  # type: ignore[method-assign]
    machines.ended = lambda _: [  # type: ignore[method-assign]
        Ended(ticket, **machines.answer(int(ticket), request)) for ticket, request in machines.waiting.items()
    ]
    _, states = follow(asked, machines, runs)
    assert states == [DONE] * 3 and machines.begun == 3 and len(refused) == 2


def test_a_run_that_is_lost_again_and_again_is_a_failed_attempt(asked: list[RunRequest], runs: Path) -> None:
    machines = Machines(lambda number, request: {"lost": "gone"})
    scheduler, _ = follow(asked[:1], machines, runs)
    assert machines.begun == 2 * MAX_LOSSES
    assert scheduler.unrecorded == {asked[0].spec.hash: [f"lost {MAX_LOSSES} times, the last time: gone"] * 2}


def test_a_machine_that_lacks_something_is_left_alone_and_the_last_ends_the_sweep(
    asked: list[RunRequest], runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lacking = {"host": "far", "archive": None, "faults": [], "lacks": ["the code in /x is 1"], "ended": None}

    def first_lacks(number: int, request: Mapping[str, Any]) -> Mapping[str, Any]:
        return {"reply": lacking if number == 1 else reply_of(tmp_path / str(number), request)}

    _, states = follow(asked, Machines(first_lacks), runs)
    assert states == [DONE] * 3 and "this one is left alone: far: the code in /x is 1" in capsys.readouterr().out
    machines = Machines(lambda number, request: {"reply": lacking})
    scheduler, _ = follow(asked_of(grid("seed=range(7,9)")), machines, runs)
    assert isinstance(scheduler.error, MachineError) and scheduler.error.faults == ("far: the code in /x is 1",)


@pytest.mark.parametrize("is_kept", [True, False])
def test_what_cannot_be_written_here_ends_the_sweep_and_is_neither_forgotten_nor_made_again(
    is_kept: bool, asked: list[RunRequest], runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("testbed.orchestrator.executors.remote_executor.unpack", full_disk)
    kept_in = tmp_path / "kept" if is_kept else None
    machines = Machines(lambda number, request: {"reply": reply_of(tmp_path / str(number), request)}, kept_in)
    scheduler, _ = follow(asked, machines, runs)
    assert isinstance(scheduler.error, MachineError) and machines.begun == 2
    assert list(machines.waiting) == ["1", "2"] and machines.ended_early == ["2"]
    (line,) = scheduler.error.faults
    assert f"cannot be written to {runs}: " in line and "No space left on device" in line and "a file" in line
    assert line.endswith(f"its reply is kept in {kept_in}" if is_kept else "it is made again then")


def test_one_sweep_at_a_time_has_runs_made_elsewhere(runs: Path) -> None:
    with RemoteExecutor(Machines(lambda *_: {}), runs, share=False), pytest.raises(MachineError, match="another sweep"):
        RemoteExecutor(Machines(lambda *_: {}), runs, share=False).__enter__()
