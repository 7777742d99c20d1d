"""What is there already, what is tried again and what is given up follow from the folder of runs alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from testbed.orchestrator.config.config import compose
from testbed.orchestrator.run_store.ended import KeptRuns
from testbed.orchestrator.search.sweep.specs import RunRequest, _together
from testbed.orchestrator.search.sweep.status import DONE, GIVEN_UP, TO_MAKE, TO_RETRY, RunStatus, counts, standing
from tests.unit.orchestrator.made_runs import asked_of, grid, make_run


@pytest.fixture(scope="module")
def asked() -> list[RunRequest]:
    return asked_of(grid("seed=range(2)"))


def now(asked: RunRequest, runs: Path, *forgotten: str) -> RunStatus:
    return standing(asked, KeptRuns(runs), forgotten)


def test_a_completed_run_of_the_same_spec_and_code_is_enough(asked: list[RunRequest], runs: Path) -> None:
    assert now(asked[0], runs).state == TO_MAKE
    make_run(runs, asked[0].spec, code_hash="0" * 16)
    assert now(asked[0], runs).state == TO_MAKE, "of other code"
    made = make_run(runs, asked[0].spec, verdict="suspect")
    found = now(asked[0], runs)
    assert found.state == DONE and found.run is not None and found.run.run_id == made.run_id
    assert now(asked[1], runs).state == TO_MAKE, "of another seed"
    assert counts([found, now(asked[1], runs)]) == {DONE: 1, TO_MAKE: 1, TO_RETRY: 0, GIVEN_UP: 0}


@pytest.mark.parametrize("first", ["failed", "completed"])
def test_what_failed_or_was_invalid_is_tried_once_more(asked: list[RunRequest], runs: Path, first: str) -> None:
    one = make_run(runs, asked[0].spec, status=first, verdict="invalid", now_s=1.7e9)
    assert now(asked[0], runs).state == TO_RETRY
    two = make_run(runs, asked[0].spec, status="failed", now_s=1.75e9)
    found = now(asked[0], runs)
    assert found.state == GIVEN_UP and [run.run_id for run in found.missed] == [one.run_id, two.run_id]
    assert found.run is not None and found.run.run_id == (one if first == "completed" else two).run_id
    assert found.why == f"{two.run_id}: failed: for a reason"
    assert now(asked[0], runs, one.run_id, two.run_id).state == TO_MAKE
    make_run(runs, asked[0].spec)
    assert now(asked[0], runs).state == DONE


def test_where_a_model_is_to_be_kept_a_run_that_kept_none_is_not_enough(runs: Path) -> None:
    """The hash says nothing of it, and the figures are the same."""
    points = grid("checkpoint=none,last").points()
    (one,) = _together({point: compose(point.overrides) for point in points}, {})
    assert one.spec.keeps_model and len(one.points) == 2
    make_run(runs, one.spec)
    assert now(one, runs).state == TO_MAKE
    keeping = make_run(runs, one.spec, now_s=1.75e9)
    keeping.model.touch()
    found = now(one, runs)
    assert found.state == DONE and found.run is not None and found.run.run_id == keeping.run_id


@pytest.mark.parametrize("status", ["interrupted", "killed"])
def test_who_was_stopped_has_not_been_tried(asked: list[RunRequest], runs: Path, status: str) -> None:
    for _ in range(3):
        make_run(runs, asked[0].spec, status=status)
    assert now(asked[0], runs).state == TO_MAKE


def test_what_is_not_sealed_or_damaged_is_nothing(asked: list[RunRequest], runs: Path) -> None:
    make_run(runs, asked[0].spec).summary.unlink()
    make_run(runs, asked[0].spec).spec.write_text("{")
    make_run(runs, asked[0].spec).summary.write_text('{"schema_version": 1}')
    assert now(asked[0], runs).state == TO_MAKE
    (runs / "elsewhere").mkdir()
    outside = make_run(runs / "elsewhere", asked[0].spec)
    outside.path.rename(runs / "not-a-run-id-ddp-none-0")
    assert now(asked[0], runs).state == TO_MAKE
