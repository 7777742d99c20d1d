"""Which run counts as there, so that it is not made again."""

from __future__ import annotations

from pathlib import Path

import pytest

from experiments.reproductions.outcome import found_of
from experiments.reproductions.runs import Asked, Kept, ask_all
from experiments.reproductions.system import Trial
from testbed.core.errors import InputError
from tests.unit.reproductions.made import BASE, make_run, system, trial


def asked(**where: str) -> Asked:
    (one,) = ask_all([trial(**where)])  # type: ignore[arg-type]
    return one


@pytest.mark.parametrize("kind", ["emulated", "simulated"])
def test_a_finished_run_of_the_same_spec_and_code_is_there(runs: Path, kind: str) -> None:
    run = make_run(runs, trial(kind=kind))
    kept = Kept(runs)
    assert kept.is_done(asked(kind=kind))
    found = kept.find(asked(kind=kind))
    assert found is not None and found.run_id == run.run_id
    for other in ({"case": "resnet34", "kind": kind}, {"arm": "old", "kind": kind}):
        assert kept.find(asked(**other)) is None
    other_kind = "simulated" if kind == "emulated" else "emulated"
    assert kept.find(asked(kind=other_kind)) is None


def test_a_run_of_other_code_or_another_seed_or_one_that_failed_is_not_there(runs: Path) -> None:
    make_run(runs, trial(), code_hash="0" * 16)
    make_run(runs, trial(seed=1))
    make_run(runs, trial(), status="failed", verdict="invalid")
    assert Kept(runs).find(asked()) is None


def test_a_run_that_was_killed_or_is_damaged_is_not_there(runs: Path) -> None:
    make_run(runs, trial()).summary.unlink()
    make_run(runs, trial()).spec.write_text("{")
    assert Kept(runs).find(asked()) is None


def test_an_invalid_run_stands_until_it_is_made_again(runs: Path) -> None:
    make_run(runs, trial(), verdict="invalid", now_s=1.7e9)
    newest = make_run(runs, trial(), verdict="invalid", now_s=1.9e9)
    kept = Kept(runs)
    found = kept.find(asked())
    assert found is not None and found.run_id == newest.run_id and not kept.is_done(asked())
    good = make_run(runs, trial(), verdict="suspect", now_s=1.8e9)
    found = kept.find(asked())
    assert found is not None and found.run_id == good.run_id and kept.is_done(asked())


def test_a_figure_is_the_median_step_without_the_first_and_the_last(runs: Path) -> None:
    run = make_run(runs, trial(), step_s=0.25)
    assert found_of(system(), trial(), run).figure == 0.25
    simulated = trial(kind="simulated")
    assert found_of(system(), simulated, make_run(runs, simulated, step_s=0.5)).figure == 0.5
    assert found_of(system(), trial(), None).figure is None
    failed = make_run(runs, trial(), status="failed", verdict="invalid")
    assert not found_of(system(), trial(), failed).counts


def test_faults_of_all_trials_are_told_at_once() -> None:
    wrong = [Trial(case, "new", "emulated", (*BASE, f"strategy={case}"), 1.0) for case in ("dear", "near", "clear")]
    with pytest.raises(InputError) as raised:
        ask_all(wrong)
    assert len(raised.value.faults) == 2
    assert all("(new)" in fault and "strategy=" in fault for fault in raised.value.faults)
