"""`longhaul tune`: settings searched for a topology, by time to the target, by bytes until then, or by both."""

from __future__ import annotations

import importlib.util
import json
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from testbed.core.errors import (
    EXIT_COMPLETED,
    EXIT_FAILED,
    InputError,
    Interrupted,
    LonghaulError,
    MachineError,
    nearest,
    raise_input_faults,
)
from testbed.core.pareto import front
from testbed.core.record.run_directory import write_json
from testbed.core.spec.run_spec import RunSpec
from testbed.orchestrator.config.config import resolve
from testbed.orchestrator.executors import executor, registry
from testbed.orchestrator.machine.lock import require_free
from testbed.orchestrator.machine.ownership import give_to_caller, made_for_caller
from testbed.orchestrator.machine.signals import Stop
from testbed.orchestrator.run.questions.plugins import check_parts
from testbed.orchestrator.run.seal import seal_killed_or_say
from testbed.orchestrator.run_store.ended import KeptRuns
from testbed.orchestrator.search.sweep import results
from testbed.orchestrator.search.sweep.axes import Axis
from testbed.orchestrator.search.sweep.grid import Grid, Point
from testbed.orchestrator.search.tune.space import Space, read
from testbed.orchestrator.search.tune.study import Trial, search
from testbed.orchestrator.search.tune.table import left_out, trials_table
from testbed.orchestrator.search.tune.trials import BYTES, TIME, Outcome, Trials
from testbed.orchestrator.terminal.progress import Progress
from testbed.orchestrator.terminal.spoken import spoken_left
from testbed.orchestrator.terminal.terminal import say, show, tell

OBJECTIVES = {"time": (TIME,), "bytes": (BYTES,), "both": (TIME, BYTES)}
MOST_TRIALS = 10_000
JOURNAL, TRIALS = "study.journal", "trials.json"
"""In the folder of results: the study as Optuna writes it, and ours."""


def tune(
    words: Sequence[str],
    runs_root: Path,
    *,
    by: str = "time",
    count: int = 20,
    as_json: bool = False,
    share: bool = False,
) -> int:
    """Make the trials that lack, write and tell what came of all, and return the exit status.

    Raises:
        InputError, MachineError: before anything was built, with every fault at once; or where no more can be made.
        Interrupted: it was stopped; what was made is there, the table too.
    """
    space = _checked(words, runs_root, by=by, count=count, share=share)
    if importlib.util.find_spec("optuna") is None:
        raise MachineError("tune: optuna is not installed: run make setup")
    kept, folder = KeptRuns(runs_root), runs_root / executor.FOLDER / space.name
    say(f"{space.name}: {count} trials of {len(space.seeds)} runs, by {' and '.join(OBJECTIVES[by])}")
    with registry.executor(executor.LOCAL, runs_root, share=share) as place:
        seal_killed_or_say(runs_root)
        with made_for_caller(runs_root, runs_root / executor.FOLDER):
            folder.mkdir(parents=True, exist_ok=True)
        trials = Trials(kept, place, as_json)
        found, error = _search(space, OBJECTIVES[by], count, folder / JOURNAL, trials)
    rows = _rows(found, OBJECTIVES[by])
    content = {"name": space.name, "by": list(OBJECTIVES[by]), "searched": list(space.keys), "trials": rows}
    with results.beside(error):
        _write(space, trials, content, runs_root)
    if as_json:
        tell(json.dumps(content, indent=2, allow_nan=False))
    else:
        show(trials_table(content))
    for line in left_out(rows):
        say(line)
    say(f"study, table, figures and data: {folder}")
    if error is not None:
        raise error
    return EXIT_COMPLETED if any(row["reached"] for row in rows) else EXIT_FAILED


def _search(
    space: Space, objectives: Sequence[str], count: int, journal: Path, trials: Trials
) -> tuple[list[Trial], LonghaulError | None]:
    """The trials that are known, and why it ended before its end; never raises that."""
    found: list[Trial] = []
    progress = Progress("trials", count)
    progress.at(0, time.monotonic())
    with Stop() as stop:

        def outcome_of(number: int, points: Sequence[Point]) -> Outcome:
            stop.heed()
            left = spoken_left(progress.left_s(time.monotonic()))
            return trials.outcome(", ".join(filter(None, [f"trial {number + 1} of {count}", left])), points)

        try:
            for trial in search(space, objectives, count, journal, outcome_of):
                found.append(trial)
                progress.at(len(found), time.monotonic())
                left = spoken_left(progress.left_s(time.monotonic()))
                line = f"trial {trial.number + 1} of {count}: {trial.label}: {trial.outcome.spoken}"
                say("; ".join(filter(None, [line, left])))
        except Interrupted as error:
            return found, error
        except LonghaulError as error:
            # a terminal's signal ends what checks, measures or reads too, which is then no fault of it
            return found, Interrupted(f"stopped by {stop.asked.name}") if stop.asked else error
    return found, None


def _checked(words: Sequence[str], runs_root: Path, *, by: str, count: int, share: bool) -> Space:
    """With what all trials have looked at once, before the first."""
    faults = [] if count >= 1 else [f"--trials {count}: must be at least 1"]
    faults += [] if count <= MOST_TRIALS else [f"--trials {count}: must be at most {MOST_TRIALS}"]
    if by not in OBJECTIVES:
        near = nearest(by, OBJECTIVES)
        guess = f" did you mean {near}?" if near else ""
        faults.append(f"--by {by}: unknown;{guess} known: {', '.join(OBJECTIVES)}")
    try:
        space = read(words)
    except InputError as error:
        raise InputError(*faults, *error.faults) from error
    # parameters of what is searched fit what is chosen, which is not known yet
    fixed = [f"{key}={value.text}" for key, value in space.fixed.items() if key.split(".")[0] not in space.keys]
    resolved = resolve(fixed, runs_root=runs_root)
    raise_input_faults([*faults, *resolved.faults])
    require_free(share=share)
    raise_input_faults(_misfits(resolved.spec, by))
    return space


def _misfits(spec: RunSpec, by: str) -> list[str]:
    if spec.program != "training":
        return [f"workload={spec.workload.name}: has no target; only our own training is searched"]
    faults = []
    if by != "time" and not spec.topology.wan_links:
        faults.append(f"--by {by}: topo={spec.topo} has no WAN link, whose bytes could be counted; use --by time")
    if check_parts(spec)["metric"] is None:
        faults.append(f"workload={spec.workload.name}: has no metric, and so no target that could be reached")
    return faults


def _rows(found: Sequence[Any], objectives: Sequence[str]) -> list[dict[str, Any]]:
    """One for each trial, as JSON, those of the front marked."""
    reached = [one for one in found if one.outcome.has_reached]
    best = set(front([_values(one.outcome.figures, objectives) for one in reached]))
    return [
        {
            "trial": one.number + 1,
            "values": {key: value.plain for key, value in one.points[0].values.items()},
            "label": one.label,
            "strategy": one.outcome.strategy,
            "compressor": one.outcome.compressor,
            "figures": one.outcome.figures,
            "reached": one.outcome.has_reached,
            "shortfall": one.outcome.shortfall,
            "why_not": one.outcome.why_not,
            "verdicts": list(one.outcome.verdicts),
            "run_ids": list(one.outcome.run_ids),
            "front": one.outcome.has_reached and _values(one.outcome.figures, objectives) in best,
        }
        for one in found
    ]


def _values(figures: Mapping[str, float], objectives: Sequence[str]) -> tuple[float, float]:
    first, *others = (figures[key] for key in objectives)
    return first, (others[0] if others else 0.0)


def _write(space: Space, trials: Trials, content: Mapping[str, Any], runs_root: Path) -> None:
    """What is written of a sweep, over all runs of trials, and the trials beside it."""
    folder = runs_root / executor.FOLDER / space.name
    if trials.standings:
        results.write(Grid(space.name, tuple(Axis(key, ()) for key in space.keys)), trials.standings, runs_root)
    write_json(folder / TRIALS, dict(content))
    give_to_caller(runs_root / executor.FOLDER)
