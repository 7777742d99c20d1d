"""How long a run will take, on the wall: as runs of the same spec took with whatever seed and code, or as predicted."""

from __future__ import annotations

import dataclasses
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from testbed.core.errors import InputError, LonghaulError, RunError
from testbed.core.spec.run_spec import RunSpec
from testbed.orchestrator.config.config import resolve
from testbed.orchestrator.config.grammar.offers import Offer, Refused
from testbed.orchestrator.machine.ownership import give_to_caller
from testbed.orchestrator.run.dilation.calibration import Calibration, calibrate, usable_cores
from testbed.orchestrator.run.dilation.first_guess import Load
from testbed.orchestrator.run.offers.taking import completed
from testbed.orchestrator.run_store.ended import KeptRun, ended_runs, pattern_of
from testbed.orchestrator.search.plan import simulated_run
from testbed.orchestrator.search.sweep.specs import RunRequest
from testbed.orchestrator.terminal.run_state import SEAL_S, SET_UP_S, WORKER_SET_UP_S
from testbed.orchestrator.terminal.status_line import Following

EARLIER, PREDICTED, UNKNOWN = "by earlier runs", "predicted", "unknown"
ROUGHLY = "roughly predicted"
"""By closed forms alone, for strategies that the simulator does not know."""


@dataclass(frozen=True)
class Estimate:
    seconds: float | None
    source: str
    """One of those above."""


class RunsRefused(InputError):
    """Runs of a sweep that cannot be made, and what would do for each."""

    def __init__(self, why: str, faults: Sequence[str], offers: Sequence[tuple[Offer, ...]]) -> None:
        super().__init__(*dict.fromkeys(faults))
        self.why = why
        """The first fault, without what would do."""
        self.offers = tuple(offers)
        """Offers for each kind of run that is refused; none where nothing is known that would do."""


def estimates(asked: Sequence[RunRequest], runs_root: Path, *, here: bool = True) -> dict[str, Estimate]:
    """Return how long each run takes, by the hash of its spec. What takes seconds is shown on standard error.

    Args:
        here: True if they are to be made here, so that this machine can tell; else earlier runs alone do.

    Raises:
        RunsRefused: One cannot be made, such as one that no dilation of time does for; with every fault.
    """
    earlier = _Earlier(runs_root, asked)
    known = {one.spec.hash: earlier.of_kind(kind_of(one.spec)) for one in asked}
    unknown: dict[str, RunRequest] = {}
    for one in asked:
        if known[one.spec.hash] is None:
            unknown.setdefault(kind_of(one.spec), one)
    predicted = _all_predicted(unknown, earlier, runs_root) if here and unknown else {}
    return {
        one.spec.hash: predicted.get(kind_of(one.spec), Estimate(None, UNKNOWN))
        if (seconds := known[one.spec.hash]) is None
        else Estimate(seconds, EARLIER)
        for one in asked
    }


def _all_predicted(asked: dict[str, RunRequest], earlier: _Earlier, runs_root: Path) -> dict[str, Estimate]:
    """Return the estimate of each kind of run."""
    found: dict[str, Estimate] = {}
    faults: list[str] = []
    offers: list[tuple[Offer, ...]] = []
    whys: list[str] = []
    with Following("predicted", len(asked), sys.stderr) as following:
        for number, (kind, one) in enumerate(asked.items()):
            following.at(number, now=one.label)
            tell = _named(following.tell, one.label)
            try:
                found[kind] = _predicted(one, earlier.beside_s(one.spec.workers), tell)
            except InputError as error:
                refused = _completed(error, one, runs_root)
                faults += [f"{one.label}: {fault}" for fault in (refused or error).faults]
                offers.append(refused.offers if refused else ())
                whys.append(f"{one.label}: {refused.why if refused else error.faults[0]}")
    if faults:
        raise RunsRefused(whys[0], faults, offers)
    return found


def _named(tell: Callable[[str], None], label: str) -> Callable[[str], None]:
    return lambda text: tell(f"{label}: {text}")


def _completed(error: InputError, one: RunRequest, runs_root: Path) -> Refused | None:
    """Return the error with all that would do for this run; None if it is of another kind."""
    if not isinstance(error, Refused):
        return None
    return completed(error, one.points[0].overrides, lambda texts: resolve(texts, runs_root=runs_root))


def kind_of(spec: RunSpec) -> str:
    """Return what is the same for runs that differ by the seed alone."""
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
        self._by_kind[kind_of(spec)].append(wall_s)
        if isinstance(time_s, int | float):
            self._beside[spec.workers].append(max(0.0, wall_s - spec.dilation * time_s))

    def of_kind(self, kind: str) -> float | None:
        found = self._by_kind.get(kind)
        return median(found) if found else None

    def beside_s(self, workers: int) -> float | None:
        """What building, warming up and evaluating took beside the steps, of runs with as many workers."""
        found = self._beside.get(workers)
        return median(found) if found else None


def _predicted(one: RunRequest, beside_s: float | None, tell: Callable[[str], None]) -> Estimate:
    """Return the estimate of a run that none before was like.

    Args:
        beside_s: Seconds beside the training that earlier runs took; None where none tells.

    Raises:
        InputError: It cannot be made.
    """
    spec, steps = one.spec, one.steps
    try:
        slowed, found = calibrate(spec, tell, give_to_caller)
    except RunError:  # it will fail as a run, and be told as one
        return Estimate(None, UNKNOWN)
    if found is None or steps is None:
        return Estimate(None, UNKNOWN)
    step_s, source = _step(spec, found)
    if beside_s is None:
        beside_s = SET_UP_S + WORKER_SET_UP_S * spec.workers + SEAL_S
    return Estimate(steps * step_s * slowed.dilation + beside_s, source)


def _step(spec: RunSpec, found: Calibration) -> tuple[float, str]:
    """Return the emulated seconds of a step, and where they are from."""
    question = {"spec": dataclasses.replace(spec, auto_dilation=False).to_json()}
    question |= {"cpu": found.cpu.to_json(), "device": found.device.to_json()}
    try:
        return float(simulated_run.ask(question)["step_s"]), PREDICTED
    except LonghaulError:  # of a kind that is not simulated; it can be made all the same
        return Load.of(spec, found.cpu, found.device, usable_cores()).step_s, ROUGHLY


def spoken(found: Sequence[Estimate]) -> str:
    """Runs times seconds, by where the seconds are from, and their sum."""
    parts = []
    for source in (EARLIER, PREDICTED, ROUGHLY):
        seconds = [one.seconds for one in found if one.source == source and one.seconds is not None]
        if seconds:
            parts.append(f"{len(seconds)} x {sum(seconds) / len(seconds):.0f} s ({source})")
    if unknown := sum(one.seconds is None for one in found):
        parts.append(f"{unknown} of unknown length")
    if not parts:
        return "nothing"
    if unknown == len(found):
        return parts[0]
    total = _spoken_time(sum(one.seconds or 0.0 for one in found))
    return f"{' + '.join(parts)} = {'at least' if unknown else 'about'} {total}"


def _spoken_time(seconds: float) -> str:
    if seconds < 300:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} minutes" if seconds < 7200 else f"{seconds / 3600:.1f} hours"
