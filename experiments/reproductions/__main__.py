"""`make reproduce`: published systems against their baselines. Needs root to emulate; `--help` says the rest.

Runs that lack are made; results, pages and tables are written.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from experiments.common.papers.declaration import FOLDER, PAGES, System, Trial, find_systems
from experiments.common.tables import number, table
from experiments.reproductions import outcome, overview, page
from experiments.reproductions.plan import MAX_S, Plan, all_plans, beyond, plan_line, plan_of
from experiments.reproductions.runner import Runner
from experiments.reproductions.runs import Kept
from experiments.reproductions.sides import found_of
from testbed.core.errors import EXIT_COMPLETED, EXIT_FAILED, LonghaulError
from testbed.core.record.run_directory import write_json
from testbed.orchestrator.machine.clone import RUNS_ROOT
from testbed.orchestrator.machine.ownership import give_to_caller

ROUNDS = 3
"""Over all systems: what failed or came out `invalid` twice is made again at the end, when a neighbour that took this
machine's cores may have gone."""


@dataclass(frozen=True)
class Places:
    """What is read and written."""

    runs: Path = RUNS_ROOT
    results: Path = FOLDER
    pages: Path = PAGES
    table: Path = overview.PAGE
    artifact: Path = overview.ARTIFACT


@dataclass(frozen=True)
class Ended:
    """Of a system: what its result holds, and what could not be made."""

    content: dict[str, Any]
    failures: list[str]


def main(argv: Sequence[str] | None = None) -> int:
    asked = _arguments(argv)
    places = Places(asked.runs, asked.results, asked.pages, asked.table, asked.artifact)
    try:
        kept = Kept(places.runs)
        systems = find_systems(asked.system)
        extent = {"full": asked.full, "seeds": asked.seeds}
        most_s = MAX_S if asked.system else None  # who asks for all has the time for it
        plans = [plan_of(one, kept, **extent, again=asked.again, most_s=most_s) for one in systems]
        if len(plans) > 1 or asked.plan:
            _say(all_plans(plans))
        if asked.plan:
            return EXIT_COMPLETED
        lacking = [] if asked.tables else [one for plan in plans for one in plan.lacking]
        rounds = 1 if asked.tables or asked.system else ROUNDS
        with Runner.of(lacking, places.runs, _say, share=asked.share) as runner:
            ended = carry_out_all(plans, places, kept, None if asked.tables else runner, rounds, **extent)
    except LonghaulError as error:
        sys.stderr.writelines(f"reproduce: {fault}\n" for fault in error.faults)
        return error.exit_status
    except KeyboardInterrupt:
        sys.stderr.write("reproduce: stopped; what was made is kept, and the next call goes on\n")
        return EXIT_FAILED
    contents = [ended[system.name].content for system in systems]
    failures = [failure for system in systems for failure in ended[system.name].failures]
    for failure in failures:
        _say(f"failed: {failure}")
    if len(systems) > 1:
        _say("\n" + summary_table(systems, contents) + "\n")
    for system, content in zip(systems, contents, strict=True):
        _say(outcome.last_line(system, content))
    # what failed beside a verdict is told, and honest
    is_without = any(one.failures and one.content["verdict"] is None for one in ended.values())
    return EXIT_FAILED if is_without else EXIT_COMPLETED


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m experiments.reproductions", description="One paper's system against its baselines."
    )
    parser.add_argument("system", nargs="?", metavar="SYSTEM", help="a folder beside this file; all without")
    extent = parser.add_mutually_exclusive_group()
    extent.add_argument("--full", action="store_true", help="all cases, arms and repeats, however long they take")
    extent.add_argument("--seeds", action="store_true", help="the usual cases and arms with all repeats, likewise")
    parser.add_argument("--again", action="store_true", help="make runs that are there once more")
    parser.add_argument("--plan", action="store_true", help="say what would be made and how long it takes, and end")
    parser.add_argument("--tables", action="store_true", help="make no run: write what those that are there say")
    parser.add_argument("--share", action="store_true", help="beside other runs on this machine")
    parser.add_argument("--runs", type=Path, default=RUNS_ROOT, metavar="DIR", help="where runs are kept")
    parser.add_argument("--results", type=Path, default=FOLDER, metavar="DIR", help="takes NAME/result.json")
    parser.add_argument("--pages", type=Path, default=PAGES, metavar="DIR", help="has NAME.md")
    parser.add_argument("--table", type=Path, default=overview.PAGE, metavar="FILE", help="has the table of all")
    parser.add_argument(
        "--artifact", type=Path, default=overview.ARTIFACT, metavar="FILE", help="has the map of claims"
    )
    return parser.parse_args(argv)


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def carry_out_all(
    plans: Sequence[Plan], places: Places, kept: Kept, runner: Runner | None, rounds: int, **extent: bool
) -> dict[str, Ended]:
    """By system's name; in each round but the first what is lacking still.

    Args:
        extent: of later rounds, as `plan_of` has it.

    Raises:
        as `carry_out`.
    """
    ended: dict[str, Ended] = {}
    for _ in range(rounds):
        for plan in plans:
            ended[plan.system.name] = carry_out(plan, places, kept, runner)
            _write_overview(places)
        later = [plan_of(plan.system, kept, **extent, most_s=plan.most_s) for plan in plans]
        plans = [plan for plan in later if plan.lacking]
    return ended


def carry_out(plan: Plan, places: Places, kept: Kept, runner: Runner | None) -> Ended:
    """Makes what a system lacks, and writes what is there of it.

    Args:
        runner: makes what lacks; None: nothing is made.

    Raises:
        InputError: a trial asks for what is not there.
        MachineError: this machine cannot make it now.
        Interrupted: somebody stopped it.
    """
    system = plan.system
    _say(f"{system.name}: {plan_line(plan.lacking, len(plan.asked))}")
    failures = runner.all(plan.lacking, plan.most_s) if runner and plan.lacking else []
    found = [found_of(system, one.trial, kept.find(one)) for one in plan.asked]
    found += [found_of(system, one.trial, kept.find(one), is_asked=False) for one in beyond(plan, kept)]
    content = outcome.result(system, found)
    folder = places.results / system.folder
    if content["verdict"] is None:
        why = f"{system.name}: no verdict: {_why_none(outcome.left(system, found))}"
        if runner:
            failures = [*failures, why]
        else:
            _say(why)
    if content["verdict"] is None and (folder / "result.json").exists():
        _say(f"{system.name}: nothing was found that gives a verdict, so what stands on its page stays")
        return Ended(content, failures)
    folder.mkdir(parents=True, exist_ok=True)
    write_json(folder / "result.json", content)
    page.write(system, found, content, places.pages)
    for path in (folder, places.pages / f"{system.name}.md"):
        give_to_caller(path)
    _say("\n" + page.cases_table(system, found) + "\n")
    return Ended(content, failures)


def _why_none(left: Sequence[Trial]) -> str:
    if left:
        return f"{len(left)} runs that decide are not made yet; call it again, and it goes on"
    return "no case has a candidate and a baseline that were emulated and may be believed"


def _write_overview(places: Places) -> None:
    overview.write(places.results, places.table, places.artifact)
    for path in (places.table, places.artifact):
        give_to_caller(path)


def summary_table(systems: Sequence[System], contents: Sequence[dict[str, Any]]) -> str:
    """A row for each system."""
    return table(
        ("system", "claimed", "emulated", "verdict"),
        [
            (system.name, number(system.claimed), number(content["emulated"], ".3f"), content["verdict"] or "-")
            for system, content in zip(systems, contents, strict=True)
        ],
    )


if __name__ == "__main__":
    sys.exit(main())
