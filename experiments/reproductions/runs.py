"""The runs of a reproduction: those that are there already, and those to be made, in `runs/` as all others.

A run counts as there if it is finished, of the trial's spec and of this code (`hash` and `code_hash` of its spec.json).
Of several the last counts. One that came out `invalid`, and an emulated one that came out `suspect`, is made again at a
later call, and stands for itself until then.
"""

from __future__ import annotations

import dataclasses
import functools
import os
import signal
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from experiments.common.papers.declaration import Trial, seed_of, with_seed
from testbed.core.errors import InputError, Interrupted, RunError
from testbed.core.record.run_directory import RunDir
from testbed.core.spec.run_spec import RunSpec
from testbed.orchestrator.config.config import resolve
from testbed.orchestrator.machine.lock import MachineLock
from testbed.orchestrator.run.run_command import checked_spec
from testbed.orchestrator.run_store.ended import KeptRun, KeptRuns
from testbed.orchestrator.search.plan import simulated_run
from testbed.orchestrator.search.plan.predict_command import question_of

EMULATED_ONLY = ("metrics_port=0",)
_TIMES_PATIENCE, _PATIENCE_S = 4, 60.0


@dataclass(frozen=True)
class TrialRequest:
    """A trial and the spec it comes to."""

    trial: Trial
    spec: RunSpec


def ask_all(trials: Sequence[Trial]) -> list[TrialRequest]:
    """Return each trial with its spec. What differs by its seed alone is resolved once.

    Raises:
        InputError: with every fault of every trial.
    """
    asked, faults = [], []
    for trial in trials:
        seed = seed_of(trial)
        try:
            if seed.isdecimal():
                first = _spec_of(tuple(_overrides(with_seed(trial, 0))), trial.kind)
                asked.append(TrialRequest(trial, dataclasses.replace(first, seed=int(seed))))
            else:
                asked.append(TrialRequest(trial, _spec_of(tuple(_overrides(trial)), trial.kind)))
        except InputError as error:
            faults += [f"{trial.label}: {fault}" for fault in error.faults]
    if faults:
        raise InputError(*dict.fromkeys(faults))
    return asked


@functools.cache
def _spec_of(overrides: tuple[str, ...], kind: str) -> RunSpec:
    """
    Raises:
        InputError: they ask for what is not there.
    """
    resolved = resolve(list(overrides), emulated=kind == "emulated")
    if resolved.faults:
        raise InputError(*resolved.faults)
    return _as_made(resolved.spec, kind)


def _as_made(spec: RunSpec, kind: str) -> RunSpec:
    """What is predicted is not slowed down: as `longhaul predict` has it."""
    return spec if kind == "emulated" else dataclasses.replace(spec, auto_dilation=False)


def _overrides(trial: Trial) -> list[str]:
    return [*trial.overrides, *(EMULATED_ONLY if trial.kind == "emulated" else ())]


class Kept:
    """The finished runs of a folder that are of this code."""

    def __init__(self, runs_root: Path) -> None:
        self._kept = KeptRuns(runs_root)

    def find(self, asked: TrialRequest) -> RunDir | None:
        """Return the last run of a spec; one that is `invalid` only where there is no other."""
        last = self._last(asked)
        return None if last is None else last.run

    def is_done(self, asked: TrialRequest) -> bool:
        """Return whether the last run decides: a verdict never rests on an emulated run that is `suspect`."""
        last = self._last(asked)
        return last is not None and last.counts and (last.verdict == "valid" or asked.trial.kind == "simulated")

    def _last(self, asked: TrialRequest) -> KeptRun | None:
        return max(self._all(asked), key=lambda kept: (kept.counts, kept.run_id), default=None)

    def _all(self, asked: TrialRequest) -> Iterator[KeptRun]:
        return (kept for kept in self._kept.of(asked.spec, asked.trial.kind) if kept.is_completed)


def make(asked: TrialRequest, runs_root: Path, *, machine: MachineLock | None, most_s: float | None = None) -> RunDir:
    """Make the run of a trial.

    Args:
        machine: held, for one that is emulated.
        most_s: what is left for it, if there is a limit for all.

    Raises:
        LonghaulError: it could not be made, or did not complete.
    """
    if asked.trial.kind == "simulated":
        return _predicted(asked, runs_root)
    limit_s = _TIMES_PATIENCE * asked.trial.seconds + _PATIENCE_S
    return _emulated(asked, runs_root, limit_s if most_s is None else min(limit_s, most_s), machine)


def _predicted(asked: TrialRequest, runs_root: Path) -> RunDir:
    began_s = time.monotonic()
    question = question_of(_overrides(asked.trial))
    return simulated_run.keep(question, simulated_run.ask(question), runs_root, wall_s=time.monotonic() - began_s)


def _emulated(asked: TrialRequest, runs_root: Path, limit_s: float, machine: MachineLock | None) -> RunDir:
    # Mininet and all: only where something is emulated
    from testbed.orchestrator.machine.signals import Stop
    from testbed.orchestrator.run.supervisor import supervise

    spec = checked_spec(resolve(_overrides(asked.trial)), runs_root)
    ended = threading.Event()

    def end() -> None:
        """As Ctrl-C would: the supervisor ends the run and seals its record."""
        ended.set()
        os.kill(os.getpid(), signal.SIGTERM)

    limit = threading.Timer(limit_s, end)
    with Stop() as stop:
        limit.start()
        try:
            outcome = supervise(spec, runs_root=runs_root, quiet=True, machine=machine)
        except Interrupted as error:  # while it was measured, before there was a run
            if ended.is_set() and len(stop.signals) == 1:
                raise RunError(_late(limit_s), *error.faults) from error
            raise
        finally:
            limit.cancel()
            limit.join()  # its signal may be under way, and nothing but `stop` takes it now
    # one of the signals is our own; another came from outside, perhaps when the run had ended and was being sealed
    if len(stop.signals) > ended.is_set():
        raise Interrupted(f"stopped from outside; {outcome.run.run_id} is kept as it is")
    reasons, status = outcome.summary["reasons"], outcome.summary["status"]
    if status == "interrupted" and not ended.is_set():
        raise Interrupted(*reasons)
    if status != "completed":
        late = (_late(limit_s),) if ended.is_set() else ()
        raise RunError(*late, *(f"{outcome.run.run_id}: {reason}" for reason in reasons))
    return outcome.run


def _late(limit_s: float) -> str:
    return f"not done after {limit_s:.0f} s"
