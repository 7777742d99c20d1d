"""The order in which runs are made, made again and left; each run is a folder that a made-up place writes."""

from __future__ import annotations

import dataclasses
import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from testbed.core.errors import Interrupted, LonghaulError, MachineError
from testbed.core.spec.run_spec import RunSpec
from testbed.orchestrator.run_store.ended import KeptRuns
from testbed.orchestrator.search.sweep.display import Display
from testbed.orchestrator.search.sweep.estimates import EARLIER, UNKNOWN, Estimate
from testbed.orchestrator.search.sweep.scheduler import SweepScheduler
from testbed.orchestrator.search.sweep.specs import RunRequest
from testbed.orchestrator.search.sweep.status import DONE, GIVEN_UP, TO_MAKE, TO_RETRY, standing
from tests.unit.orchestrator.made_runs import Place, asked_of, grid, make_run

GOOD: dict[str, Any] = {}
BAD: dict[str, Any] = {"verdict": "invalid"}


@pytest.fixture(scope="module")
def asked() -> list[RunRequest]:
    return asked_of(grid("seed=range(3)"))


def follow(
    asked: list[RunRequest], place: Place, seconds: float | None = 1.0, most_s: float | None = None
) -> SweepScheduler:
    kept = KeptRuns(place.root)
    found = [standing(one, kept) for one in asked]
    each = Estimate(seconds, UNKNOWN if seconds is None else EARLIER)
    expected = {one.spec.hash: each for one in asked}
    with Display("made", found, expected, on_error_stream=False) as display:
        scheduler = SweepScheduler(kept, expected, display, most_s)
        scheduler.follow(found, place)
    return scheduler


def states(asked: list[RunRequest], runs: Path) -> list[str]:
    return [standing(one, KeptRuns(runs)).state for one in asked]


def test_what_is_there_is_left_alone_and_the_rest_made_once(
    asked: list[RunRequest], runs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    make_run(runs, asked[1].spec)
    place = Place(runs, lambda number, spec: GOOD)
    scheduler = follow(asked, place)
    assert [spec.seed for spec in place.begun] == [0, 2] and scheduler.error is None
    assert states(asked, runs) == [DONE] * 3
    out = capsys.readouterr().out
    assert "seed=0: begun, about 1 s" in out and "2/3  seed=0: 0 s, valid, " in out
    again = Place(runs, lambda number, spec: GOOD)
    follow(asked, again)
    assert again.begun == []


def test_a_miss_is_made_again_after_the_others_and_then_given_up(asked: list[RunRequest], runs: Path) -> None:
    place = Place(runs, lambda number, spec: BAD if spec.seed == 0 else GOOD)
    assert follow(asked, place).error is None
    assert [spec.seed for spec in place.begun] == [0, 1, 2, 0]
    assert states(asked, runs) == [GIVEN_UP, DONE, DONE]
    again = Place(runs, lambda number, spec: GOOD)
    follow(asked, again)
    assert again.begun == [], "what was given up stays so without being told to try again"


def test_a_miss_of_an_earlier_call_counts(asked: list[RunRequest], runs: Path) -> None:
    make_run(runs, asked[0].spec, status="failed", now_s=1.7e9)
    assert states(asked[:1], runs) == [TO_RETRY]
    place = Place(runs, lambda number, spec: BAD)
    follow(asked[:1], place)
    assert len(place.begun) == 1 and states(asked[:1], runs) == [GIVEN_UP]


def test_what_leaves_no_record_is_tried_twice_too(asked: list[RunRequest], runs: Path) -> None:
    place = Place(runs, lambda number, spec: "no word" if spec.seed == 1 else GOOD)
    scheduler = follow(asked, place)
    assert [spec.seed for spec in place.begun] == [0, 1, 2, 1]
    assert scheduler.unrecorded == {asked[1].spec.hash: ["no word", "no word"]}
    assert states(asked, runs) == [DONE, TO_MAKE, DONE]


@pytest.mark.parametrize("missed_before", [False, True])
def test_what_is_of_other_code_than_the_call_is_no_more_tries_than_any_other(
    asked: list[RunRequest], runs: Path, *, missed_before: bool
) -> None:
    if missed_before:
        make_run(runs, asked[0].spec, status="failed", now_s=1.7e9)
    place = Place(runs, lambda number, spec: {"code_hash": "0" * 16})
    scheduler = follow(asked[:1], place)
    assert len(place.begun) == 2 and states(asked[:1], runs) == [TO_RETRY if missed_before else TO_MAKE]
    assert "other code" in scheduler.unrecorded[asked[0].spec.hash][0]


@pytest.mark.parametrize("error", [Interrupted("stopped by SIGINT"), MachineError("no port")])
def test_an_end_from_outside_keeps_what_is_made_and_the_next_call_goes_on(
    asked: list[RunRequest], runs: Path, error: LonghaulError
) -> None:
    scheduler = follow(asked, Place(runs, lambda number, spec: GOOD if number == 1 else error))
    assert scheduler.error is error and states(asked, runs) == [DONE, TO_MAKE, TO_MAKE]
    place = Place(runs, lambda number, spec: GOOD)
    follow(asked, place)
    assert [spec.seed for spec in place.begun] == [1, 2]


def test_a_signal_between_two_runs_begins_no_other(asked: list[RunRequest], runs: Path) -> None:
    before = signal.getsignal(signal.SIGTERM)

    def ends(number: int, spec: RunSpec) -> dict[str, Any]:
        os.kill(os.getpid(), signal.SIGTERM)
        return GOOD

    place = Place(runs, ends)
    scheduler = follow(asked, place)
    assert isinstance(scheduler.error, Interrupted) and len(place.begun) == 1
    assert states(asked, runs)[0] == DONE and signal.getsignal(signal.SIGTERM) == before


def test_no_run_is_begun_that_would_end_too_late(asked: list[RunRequest], runs: Path) -> None:
    place = Place(runs, lambda number, spec: GOOD)
    scheduler = follow(asked, place, seconds=100.0, most_s=60.0)
    assert place.begun == [] and scheduler.left == asked
    scheduler = follow(asked, place, seconds=None, most_s=60.0)
    assert len(place.begun) == 3 and scheduler.left == [], "of what nothing is known it is found out"


def test_the_line_has_what_is_done_what_is_left_and_what_is_made(
    asked: list[RunRequest], runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(time, "monotonic", lambda: 100.0)
    make_run(runs, asked[0].spec)
    found = [standing(one, KeptRuns(runs)) for one in asked]
    one, other = (asked[number].spec.hash for number in (1, 2))
    display = Display("made", found, dict.fromkeys((one, other), Estimate(60.0, EARLIER)), on_error_stream=False)
    assert display._drawn(80, 100.0).plain == "made: 1 of 3 runs | 2 min left"
    display.begin(asked[1], 60.0)
    assert display._drawn(80, 150.0).plain == "made: 1 of 3 runs | 70 s left | seed=1 50 s"
    assert display._drawn(20, 150.0).plain == "made: 1 of 3 runs |…"
    unlike = [dataclasses.replace(state, asked=dataclasses.replace(state.asked)) for state in found]
    unlike[2] = standing(asked_of(grid("batch_size=7"))[0], KeptRuns(runs))
    display = Display("made", unlike, {one: Estimate(60.0, EARLIER)}, on_error_stream=False)
    assert display._drawn(80, 100.0).plain == "made: 1 of 3 runs | 60 s left and 1 run of unknown length"
