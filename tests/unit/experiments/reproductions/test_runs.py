"""Which run counts as there, so that it is not made again; and who ended one that is made."""

from __future__ import annotations

import dataclasses
import os
import signal
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from experiments.common.papers.declaration import Trial, seed_of, with_seed
from experiments.reproductions.runs import Kept, TrialRequest, ask_all, make
from experiments.reproductions.sides import found_of
from testbed.core.errors import InputError, Interrupted, RunError
from testbed.core.record.run_directory import RunDir
from testbed.orchestrator.machine.signals import Stop
from testbed.orchestrator.run import supervisor
from testbed.orchestrator.run.supervisor import Outcome
from tests.unit.experiments.reproductions.fake_runs import BASE, make_run, system, trial
from tests.waiting import HANG_S


def asked(**where: str) -> TrialRequest:
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


def test_runs_of_other_data_than_the_newest_are_not_there(runs: Path) -> None:
    """What a case holds against each other is of the same data: an upgrade of the system may bring others."""
    make_run(runs, trial(), data_hash="old", now_s=1.7e9)
    make_run(runs, trial(arm="slow"), data_hash="old", now_s=1.75e9)
    assert Kept(runs).is_done(asked()) and Kept(runs).is_done(asked(arm="slow"))
    make_run(runs, trial(arm="slow"), data_hash="new", now_s=1.8e9)
    make_run(runs, trial(case="resnet34"), data_hash="of another model", now_s=1.9e9)
    assert Kept(runs).find(asked()) is None and Kept(runs).is_done(asked(arm="slow"))
    assert Kept(runs).is_done(asked(case="resnet34"))


def test_data_are_those_of_the_newest_run_by_whichever_name_its_workload_has_its_parts(runs: Path) -> None:
    """A record keeps the names that classes had when it was made."""
    old, new = "testbed.core.federated.partitions.Iid", "testbed.worker.data.partitions.Iid"
    made = trial()
    partitioned = dataclasses.replace(made, overrides=(*made.overrides, f"workload.partition={{_target_: {new}}}"))
    run = make_run(runs, partitioned, data_hash="this")
    run.spec.write_text(run.spec.read_text().replace(new, old))
    (one,) = ask_all([partitioned])
    assert old in run.spec.read_text() and Kept(runs).is_done(one)


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
    doubtful = make_run(runs, trial(), verdict="suspect", now_s=1.8e9)
    found = kept.find(asked())
    assert found is not None and found.run_id == doubtful.run_id and not kept.is_done(asked()), "it decides nothing"
    good = make_run(runs, trial(), now_s=1.85e9)
    found = kept.find(asked())
    assert found is not None and found.run_id == good.run_id and kept.is_done(asked())


def test_of_several_runs_the_last_stands(runs: Path) -> None:
    make_run(runs, trial(), step_s=1.0, now_s=1.7e9)
    last = make_run(runs, trial(), step_s=2.0, now_s=1.8e9)
    kept = Kept(runs)
    found = kept.find(asked())
    assert found is not None and found.run_id == last.run_id
    make_run(runs, trial(), verdict="suspect", now_s=1.9e9)
    assert not kept.is_done(asked()), "a later doubt takes the repeat back"


def test_a_simulated_run_may_be_suspect(runs: Path) -> None:
    """Outside of the simulator's validated range all are."""
    make_run(runs, trial(kind="simulated"), verdict="suspect")
    assert Kept(runs).is_done(asked(kind="simulated"))


def test_trials_that_differ_by_their_seed_have_specs_that_differ_by_it() -> None:
    trials = [with_seed(trial(), seed) for seed in range(3)]
    for one, alone in zip(ask_all(trials), trials, strict=True):
        assert one == ask_all([alone])[0] and one.spec.seed == int(seed_of(alone))
    unseeded = dataclasses.replace(trial(), overrides=tuple(w for w in trial().overrides if not w.startswith("seed=")))
    assert seed_of(unseeded) == "0" and with_seed(unseeded, 2).overrides == (*unseeded.overrides, "seed=2")
    assert ask_all([unseeded])[0].spec.hash == ask_all([trial()])[0].spec.hash
    with pytest.raises(InputError, match="seed"):
        ask_all([trial(), dataclasses.replace(trial(), overrides=(*unseeded.overrides, "seed=-1"))])


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


LIMIT_S = 0.05
Ends = Callable[[Callable[[], str]], None]


@pytest.fixture
def ends(runs: Path, monkeypatch: pytest.MonkeyPatch) -> Ends:
    """Puts in the place of a run, which may take `LIMIT_S`, what gives its status when it is sealed."""

    def put(end: Callable[[], str]) -> None:
        def supervised(spec: object, **_: object) -> Outcome:
            with Stop():
                status = end()
            run = make_run(runs, trial(), status=status)
            return Outcome(run, run.read_json(run.summary))

        monkeypatch.setattr(supervisor, "supervise", supervised)
        monkeypatch.setattr("experiments.reproductions.runs.checked_spec", lambda *_: asked().spec)

    return put


@pytest.fixture
def limit(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Set once the limit's own signal has been sent, however late that is on a busy machine."""
    sent, kill = threading.Event(), os.kill

    def noted(pid: int, number: int) -> None:
        kill(pid, number)
        sent.set()

    monkeypatch.setattr(os, "kill", noted)
    return sent


def interrupt(number: signal.Signals = signal.SIGINT, *, status: str = "completed") -> str:
    """From outside."""
    os.kill(os.getpid(), number)
    return status


def made(runs: Path, most_s: float | None = None) -> RunDir:
    return make(asked(), runs, machine=None, most_s=most_s)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_while_a_run_is_sealed_keeps_it_and_ends_all(ends: Ends, runs: Path, number: signal.Signals) -> None:
    ends(lambda: interrupt(number))
    with pytest.raises(Interrupted):
        made(runs)
    assert Kept(runs).is_done(asked())


@pytest.mark.tier("all")
def test_the_limit_s_own_signal_ends_one_run_alone(ends: Ends, runs: Path, limit: threading.Event) -> None:
    def late(status: str) -> str:
        assert limit.wait(HANG_S), "the signal of a limit"
        return status

    ends(lambda: late("completed"))
    assert made(runs, LIMIT_S).run_id, "it came when the run was being sealed"
    limit.clear()
    ends(lambda: late("interrupted"))
    with pytest.raises(RunError, match="not done after") as raised:
        made(runs, LIMIT_S)
    assert not isinstance(raised.value, Interrupted)
    limit.clear()
    ends(lambda: interrupt(status=late("interrupted")))
    with pytest.raises(Interrupted):
        made(runs, LIMIT_S)


def test_a_limit_that_ends_the_measuring_is_no_stop_either(ends: Ends, runs: Path, limit: threading.Event) -> None:
    def measured() -> str:
        assert limit.wait(HANG_S), "the signal of a limit"
        raise Interrupted("stopped by SIGTERM while a step was measured; nothing was built")

    ends(measured)
    with pytest.raises(RunError, match="not done after") as raised:
        made(runs, LIMIT_S)
    assert not isinstance(raised.value, Interrupted)
