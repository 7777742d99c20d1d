"""`longhaul sweep`: every run of a grid that is not there already is made, then one table over all of them."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from testbed.core.errors import EXIT_COMPLETED, EXIT_FAILED, EXIT_INVALID, InputError, raise_input_faults
from testbed.core.files import printable
from testbed.core.record.table_formats import write_text
from testbed.orchestrator.config.grammar.offers import Offer, joined
from testbed.orchestrator.config.grammar.overrides import parse_overrides
from testbed.orchestrator.executors import executor, registry
from testbed.orchestrator.machine.lock import require_free
from testbed.orchestrator.machine.ownership import give_to_caller, outermost_new
from testbed.orchestrator.run.offers.taking import MOST_TAKEN
from testbed.orchestrator.run.seal import seal_killed_or_say
from testbed.orchestrator.run_store.ended import KeptRuns
from testbed.orchestrator.search.sweep import files, results
from testbed.orchestrator.search.sweep.display import Display
from testbed.orchestrator.search.sweep.estimates import Estimate, RunsRefused, estimates, spoken
from testbed.orchestrator.search.sweep.grid import Grid, Point
from testbed.orchestrator.search.sweep.scheduler import SweepScheduler
from testbed.orchestrator.search.sweep.specs import RunRequest, ask_all
from testbed.orchestrator.search.sweep.status import DONE, GIVEN_UP, RunStatus, counts, standing
from testbed.orchestrator.terminal.terminal import say, tell


def sweep(
    words: Sequence[str],
    runs_root: Path,
    *,
    executor: str = executor.LOCAL,
    options: Sequence[str] = (),
    max_hours: float | None = None,
    plan: bool = False,
    retry: bool = False,
    form: str = "text",
    output: Path | None = None,
    share: bool = False,
    fix: bool = False,
) -> int:
    """Make what lacks, write and tell the table, and return the exit status.

    Args:
        words: a sweep's name and axes, or axes alone.
        options: of the executor, as key=value; a key given here replaces the file's.
        max_hours: of this call, in place of the file's.
        plan: make nothing: say what would be made.
        form: Format of the table that is told. In any but text all else goes to the error stream.
        output: File that takes the table; nothing of it is printed then.
        retry: what failed or was invalid before this call does not count.
        fix: take the first of what would do for runs that are refused, for all runs alike.

    Raises:
        InputError, MachineError: before anything was built, with every fault at once; or where no more can be made.
        Interrupted: it was stopped; what was made is there, the table too.
    """
    began_s = time.monotonic()
    if plan and (form not in PLAN_FORMATS or output is not None):
        raise InputError("sweep --dry-run: has no table; it is printed as text, or as JSON by --format json")
    place, grid, points = _asked(words, executor, options, runs_root, share=share)
    if place.is_here and not plan:
        require_free(share=share)
    grid = grid.within(max_hours)
    say(f"sweep {grid.name}: looking at {len(points)} runs")
    asked = ask_all(points, runs_root, here=place.is_here and not plan)
    kept = KeptRuns(runs_root)
    if plan:
        seen = _seen(asked, kept, place, here=False, retry=retry, fix=fix)
        _tell_plan(grid, seen.found, seen.expected, as_json=form == "json")
        return EXIT_COMPLETED
    with place:
        seal_killed_or_say(runs_root)
        seen = _seen(asked, kept, place, here=place.is_here, retry=retry, fix=fix)
        say(_plan_line(grid, seen.found, seen.expected) + (f"; {place.room}" if place.room else ""))
        with Display(grid.name, seen.found, seen.expected, on_error_stream=form != "text") as display:
            scheduler = SweepScheduler(kept, seen.expected, display, grid.most_s, began_s, seen.forgotten)
            scheduler.follow(seen.found, place)
    return _end(grid, scheduler, _standings(seen.asked, kept), runs_root, form, output)


PLAN_FORMATS = ("text", "json")
"""Formats of a dry run (`--dry-run`)."""


@dataclass(frozen=True)
class _Seen:
    """What a sweep is to make, looked at before the first run."""

    asked: Sequence[RunRequest]
    found: Sequence[RunStatus]
    expected: Mapping[str, Estimate]
    forgotten: frozenset[str]
    """Ids of runs that are no attempts any more."""


def _seen(
    asked: Sequence[RunRequest], kept: KeptRuns, place: executor.Executor, *, here: bool, retry: bool, fix: bool
) -> _Seen:
    """Look at all runs, under the lock if there is one: another sweep may have made some of them until now.

    What is taken by `fix` is taken by all runs alike, since the rows of a table are to differ by its axes alone.

    Args:
        here: True if what this machine lacks is a fault.
    """
    tries = MOST_TAKEN if fix else 0
    while True:
        forgotten = _forgotten(asked, kept, retry=retry)
        found = _standings(asked, kept, forgotten)
        try:
            to_make = [one.asked for one in _to_make(found)]
            return _Seen(asked, found, estimates(to_make, kept.runs_root, here=place.is_here), forgotten)
        except RunsRefused as error:
            points = [point for one in asked for point in one.points]
            if tries == 0 or (offer := _for_all(error, points)) is None:
                raise
            say(f"{error.why}; --fix takes {' '.join(offer.overrides)} for all runs")
        asked, tries = ask_all([point.with_changes(offer) for point in points], kept.runs_root, here=here), tries - 1


def _for_all(error: RunsRefused, points: Sequence[Point]) -> Offer | None:
    """Return the first offer that changes no axis, of every run that is refused, in one; None if one has none."""
    axes = {key for point in points for key in point.varying}
    taken = [
        next((one for one in offers if not any(one.replaces(key) for key in axes)), None) for offers in error.offers
    ]
    return None if None in taken else joined([one for one in taken if one is not None])


def _asked(
    words: Sequence[str], executor: str, options: Sequence[str], runs_root: Path, *, share: bool
) -> tuple[executor.Executor, Grid, list[Point]]:
    faults: list[str] = []
    of_file: Mapping[str, object] = {}
    try:
        grid = files.asked(words)
        of_file = grid.executors.get(executor, {})
        points = grid.points()
    except InputError as error:
        faults += error.faults
    given, unread = parse_overrides(options)
    faults += [f"--executor-option {fault}" for fault in unread]
    try:
        merged = {**of_file, **{one.key: one.value for one in given}}
        place = registry.executor(executor, runs_root, share=share, options=merged)
    except InputError as error:
        faults += error.faults
    raise_input_faults(faults)
    return place, grid, points


def _standings(asked: Sequence[RunRequest], kept: KeptRuns, forgotten: frozenset[str] = frozenset()) -> list[RunStatus]:
    return [standing(one, kept, forgotten) for one in asked]


def _forgotten(asked: Sequence[RunRequest], kept: KeptRuns, *, retry: bool) -> frozenset[str]:
    return frozenset(run.run_id for one in _standings(asked, kept) for run in one.missed if retry)


def _to_make(standings: Sequence[RunStatus]) -> list[RunStatus]:
    return [one for one in standings if one.state not in (DONE, GIVEN_UP)]


def _plan_line(grid: Grid, standings: Sequence[RunStatus], expected: Mapping[str, Estimate]) -> str:
    """What is there, then runs times seconds, before anything is begun."""
    number = counts(standings)
    there = f"sweep {grid.name}: {number[DONE]} of {len(standings)} runs are there"
    if number[GIVEN_UP]:
        there += f", {number[GIVEN_UP]} given up (--retry tries them again)"
    if not (to_make := _to_make(standings)):
        return f"{there}; nothing to make"
    line = f"{there}; to make: {spoken([expected[one.asked.spec.hash] for one in to_make])}"
    most = "" if grid.max_hours is None else f"; none is begun that would end after {grid.max_hours:g} h"
    return line + most


def _tell_plan(grid: Grid, standings: Sequence[RunStatus], expected: Mapping[str, Estimate], *, as_json: bool) -> None:
    if as_json:
        tell(json.dumps({"name": grid.name, "runs": results.rows(standings, expected)}, indent=2, allow_nan=False))
        return
    for one in standings:
        for point in one.asked.points:
            found = f", {one.run.run_id}" if one.run else ""
            tell(f"{printable(point.label)}: {one.state}{found}")
    tell(_plan_line(grid, standings, expected))


def _end(
    grid: Grid,
    scheduler: SweepScheduler,
    standings: Sequence[RunStatus],
    runs_root: Path,
    form: str,
    output: Path | None,
) -> int:
    with results.beside(scheduler.error):
        folder = results.write(grid, standings, runs_root)
        table = (folder / results.TABLES[form]).read_text().rstrip("\n")
        if output is None:
            tell(table)
        else:
            made = outermost_new(output)
            write_text(output, table)
            give_to_caller(made)
    for line in _remarks(scheduler, standings):
        say(line)
    say(f"table, figures and data: {folder}")
    if scheduler.error is not None:
        raise scheduler.error
    return _exit_status(standings)


def _remarks(scheduler: SweepScheduler, standings: Sequence[RunStatus]) -> Iterator[str]:
    for one in standings:
        if one.state == GIVEN_UP:
            yield f"{one.asked.label}: given up after {len(one.missed)} attempts, --retry tries again: {one.why}"
        for reason in scheduler.unrecorded.get(one.asked.spec.hash, ()):
            yield f"{one.asked.label}: failed: {reason}"
    if scheduler.left:
        yield f"left for the next call: {len(scheduler.left)} runs, which would have ended too late"


def _exit_status(standings: Sequence[RunStatus]) -> int:
    if all(one.state == DONE for one in standings):
        return EXIT_COMPLETED
    lacking = [one for one in standings if one.state != DONE]
    are_invalid = all(one.state == GIVEN_UP and one.run is not None and one.run.is_completed for one in lacking)
    return EXIT_INVALID if are_invalid else EXIT_FAILED
