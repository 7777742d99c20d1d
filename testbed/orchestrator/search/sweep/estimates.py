"""How long a run will take, on the wall: as runs of the same spec took with whatever seed and code, or as predicted."""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from testbed.core.errors import InputError, LonghaulError, RunError
from testbed.core.spec.run_spec import RunSpec
from testbed.orchestrator.machine.ownership import give_to_caller
from testbed.orchestrator.run.calibration import calibrate
from testbed.orchestrator.run_store.ended import KeptRun, ended_runs, pattern_of
from testbed.orchestrator.search.plan import simulated_run
from testbed.orchestrator.search.sweep.specs import RunRequest

EARLIER, PREDICTED, UNKNOWN = "by earlier runs", "predicted", "unknown"
TRAINING = "predicted, the training alone"
"""Where no earlier run tells what building and warming up take."""


@dataclass(frozen=True)
class Estimate:
    seconds: float | None
    source: str
    """One of those above."""


def estimates(
    asked: Sequence[RunRequest], runs_root: Path, tell: Callable[[str], None], *, here: bool = True
) -> dict[str, Estimate]:
    """By the hash of each spec.

    Args:
        tell: is told what takes seconds: a step that was never measured here.
        here: whether they are to be made here, so that this machine can tell; else earlier runs alone do.

    Raises:
        InputError: one that cannot be made, such as one that no dilation of time does for; with every fault.
    """
    earlier = _Earlier(runs_root, asked)
    found: dict[str, Estimate] = {}
    predicted: dict[str, Estimate] = {}
    faults: list[str] = []
    for one in asked:
        kind = _kind(one.spec)
        if (seconds := earlier.of_kind(kind)) is not None:
            found[one.spec.hash] = Estimate(seconds, EARLIER)
            continue
        if kind not in predicted:
            try:
                beside_s = earlier.beside_s(one.spec.workers)
                predicted[kind] = _predicted(one.spec, beside_s, tell) if here else Estimate(None, UNKNOWN)
            except InputError as error:
                faults += [f"{one.label}: {fault}" for fault in error.faults]
                predicted[kind] = Estimate(None, UNKNOWN)
        found[one.spec.hash] = predicted[kind]
    if faults:
        raise InputError(*dict.fromkeys(faults))
    return found


def _kind(spec: RunSpec) -> str:
    """The same for runs that differ by the seed alone."""
    return dataclasses.replace(spec, seed=0).hash


class _Earlier:
    """Completed emulated runs of the strategies and compressors that are asked for."""

    def __init__(self, runs_root: Path, asked: Iterable[RunRequest]) -> None:
        self._by_kind: dict[str, list[float]] = defaultdict(list)
        self._beside: dict[int, list[float]] = defaultdict(list)
        for pattern in {pattern_of(one.spec) for one in asked}:
            for kept in ended_runs(runs_root, pattern):
                self._add(kept)

    def _add(self, kept: KeptRun) -> None:
        wall_s, time_s = kept.summary.get("wall_s"), kept.summary.get("time_s")
        if not kept.is_completed or kept.summary.get("kind") != "emulated" or not isinstance(wall_s, int | float):
            return
        try:
            spec = RunSpec.from_json(kept.spec)
        except (LonghaulError, KeyError, TypeError, ValueError, AttributeError):  # another version's, or damaged
            return
        self._by_kind[_kind(spec)].append(wall_s)
        if isinstance(time_s, int | float):
            self._beside[spec.workers].append(max(0.0, wall_s - spec.dilation * time_s))

    def of_kind(self, kind: str) -> float | None:
        found = self._by_kind.get(kind)
        return median(found) if found else None

    def beside_s(self, workers: int) -> float | None:
        """What building, warming up and evaluating took beside the steps, of runs with as many workers."""
        found = self._beside.get(workers)
        return median(found) if found else None


def _predicted(spec: RunSpec, beside_s: float | None, tell: Callable[[str], None]) -> Estimate:
    """
    Raises:
        InputError: it cannot be made.
    """
    try:
        slowed, found = calibrate(spec, tell, give_to_caller)
    except RunError:  # it will fail as a run, and be told as one
        return Estimate(None, UNKNOWN)
    if found is None or spec.steps is None:
        return Estimate(None, UNKNOWN)
    question = {"spec": dataclasses.replace(spec, auto_dilation=False).to_json()}
    question |= {"cpu": found.cpu.to_json(), "device": found.device.to_json()}
    try:
        step_s = float(simulated_run.ask(question)["step_s"])
    except LonghaulError:  # of a kind that is not simulated; it can be made all the same
        return Estimate(None, UNKNOWN)
    training_s = spec.steps * step_s * slowed.dilation
    return Estimate(training_s, TRAINING) if beside_s is None else Estimate(training_s + beside_s, PREDICTED)


def spoken(found: Sequence[Estimate]) -> str:
    """Runs times seconds, by where the seconds are from, and their sum."""
    parts = []
    for source in (EARLIER, PREDICTED, TRAINING):
        seconds = [one.seconds for one in found if one.source == source and one.seconds is not None]
        if seconds:
            parts.append(f"{len(seconds)} x {sum(seconds) / len(seconds):.0f} s ({source})")
    if unknown := sum(one.seconds is None for one in found):
        parts.append(f"{unknown} of unknown length")
    is_least = unknown or any(one.source == TRAINING for one in found)
    total = _spoken_time(sum(one.seconds or 0.0 for one in found))
    return f"{' + '.join(parts)} = {'at least' if is_least else 'about'} {total}" if parts else "nothing"


def _spoken_time(seconds: float) -> str:
    if seconds < 300:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} minutes" if seconds < 7200 else f"{seconds / 3600:.1f} hours"
