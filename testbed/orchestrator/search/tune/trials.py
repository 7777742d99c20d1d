"""One trial: its runs, made as a sweep makes them, and what they say of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any

from testbed.core.errors import InputError
from testbed.core.units import format_size
from testbed.orchestrator.config.config import resolve
from testbed.orchestrator.executors.executor import Executor
from testbed.orchestrator.run_store.ended import KeptRun, KeptRuns
from testbed.orchestrator.search.plan.analysis_client import ask_analysis
from testbed.orchestrator.search.sweep.grid import Point
from testbed.orchestrator.search.sweep.retry import Made, RetryingRunner
from testbed.orchestrator.search.sweep.specs import RunRequest, ask_all
from testbed.orchestrator.search.sweep.status import DONE, GIVEN_UP, RunStatus, standing

TIME, BYTES = "time_to_target_s", "wan_bytes"
TIME_LIMIT_S = 120.0


@dataclass(frozen=True)
class Outcome:
    """Of one trial. Means are over its seeds."""

    figures: Mapping[str, float] | None
    """`TIME` and `BYTES`; of a run that did not reach the target what it had taken by its end. None: it failed."""
    shortfall: float
    """How far the worst of its runs stayed from the target, as a share of it; 0: all reached it."""
    why_not: str | None
    """Of a trial that failed."""
    verdicts: tuple[str, ...] = ()
    run_ids: tuple[str, ...] = ()
    strategy: str | None = None
    """Name of the strategy of its runs; None if none was judged."""
    compressor: str | None = None
    """Name of their compressor."""

    @property
    def has_reached(self) -> bool:
        return self.figures is not None and self.shortfall == 0

    @property
    def spoken(self) -> str:
        if self.figures is None:
            return f"failed: {self.why_not}"
        taken = f"{self.figures[TIME]:.4g} s, {format_size(self.figures[BYTES])} over the WAN"
        return taken if self.has_reached else f"target not reached after {taken}"


@dataclass
class Trials:
    """Of one command, whose place is held already."""

    kept: KeptRuns
    place: Executor
    on_error_stream: bool
    standings: list[RunStatus] = field(default_factory=list)
    """Of all runs that were asked for, each once."""

    def outcome(self, name: str, points: Sequence[Point]) -> Outcome:
        """
        Args:
            name: of the trial, as it is shown while its runs are made.

        Raises:
            MachineError: no run can be made here.
            Interrupted: somebody asked for the end.
        """
        try:
            asked = self._asked(points)
            made = RetryingRunner(name, self.kept, self.place, self.on_error_stream).runs(asked)
        except InputError as error:
            return Outcome(None, 0.0, f"refused: {'; '.join(error.faults)}")
        self._remember(made)
        lacking = [one.why_not for one in made if one.why_not is not None]
        if lacking:
            runs = [one.standing.run for one in made]
            return Outcome(None, 0.0, "; ".join(lacking), run_ids=tuple(run.run_id for run in runs if run))
        return self._judged([one.standing.done for one in made if one.standing.done is not None])

    def _asked(self, points: Sequence[Point]) -> list[RunRequest]:
        """What is there already need not be checked again, which takes seconds."""
        resolved = [resolve(point.overrides, runs_root=self.kept.runs_root) for point in points]
        if not any(one.faults for one in resolved):
            found = [RunRequest(one.spec, (point,)) for one, point in zip(resolved, points, strict=True)]
            if all(standing(one, self.kept).state in (DONE, GIVEN_UP) for one in found):
                return found
        return ask_all(points, self.kept.runs_root)

    def _remember(self, made: Sequence[Made]) -> None:
        known = {one.asked.spec.hash for one in self.standings}
        self.standings += [one.standing for one in made if one.standing.asked.spec.hash not in known]

    def _judged(self, runs: Sequence[KeptRun]) -> Outcome:
        told = ask_analysis("reached", *(str(run.run.path) for run in runs), time_limit_s=TIME_LIMIT_S)
        verdicts, run_ids = tuple(run.verdict for run in runs), tuple(run.run_id for run in runs)
        taken = [_taken(one, run.summary) for one, run in zip(told, runs, strict=True)]
        if uncounted := [run.run_id for run, (_, sent) in zip(runs, taken, strict=True) if sent is None]:
            why_not = f"{', '.join(uncounted)}: does not tell how many bytes had left WAN links when it was there"
            return Outcome(None, 0.0, why_not, verdicts, run_ids)
        figures = {TIME: fmean(seconds for seconds, _ in taken), BYTES: fmean(sent or 0.0 for _, sent in taken)}
        shortfall = max(_shortfall(run.summary["metric"]) for run in runs)
        names = (str(runs[0].summary["strategy"]), str(runs[0].summary["compressor"]))
        return Outcome(figures, shortfall, None, verdicts, run_ids, *names)


def _taken(told: Mapping[str, Any], summary: Mapping[str, Any]) -> tuple[float, float | None]:
    """Seconds and WAN bytes until the target, or until the end where it was not reached; no bytes without a WAN."""
    whole = summary["bytes"]["wire_wan"]
    if told[TIME] is None:
        return float(summary["time_s"]), float(whole or 0.0)
    return float(told[TIME]), 0.0 if whole is None else told[BYTES]


def _shortfall(metric: Mapping[str, Any]) -> float:
    """Above 0 wherever the target was not reached."""
    if metric["time_to_target_s"] is not None:
        return 0.0
    if metric["best"] is None or metric["target"] is None:
        return 1.0
    best, target = float(metric["best"]), float(metric["target"])
    return max(abs(target - best) / (abs(target) or 1.0), 1e-9)
