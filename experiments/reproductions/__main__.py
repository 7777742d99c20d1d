"""`make reproduce`: published systems against their baselines. Needs root to emulate; `--help` says the rest.

A call makes one repeat: the first that is not there. Results, pages and tables are written from what was found.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from experiments.common.papers.declaration import FOLDER, PAGES, System, find_systems
from experiments.reproductions import outcome, overview, page
from experiments.reproductions.plan import MAX_S, Plan, all_plans, beyond, plan_of, repeat_line
from experiments.reproductions.runner import Runner
from experiments.reproductions.runs import Kept
from experiments.reproductions.sides import found_of
from testbed.core.errors import EXIT_COMPLETED, EXIT_FAILED, InputError, LonghaulError
from testbed.core.files import read_object
from testbed.core.record.run_directory import write_json
from testbed.orchestrator.machine.clone import RUNS_ROOT
from testbed.orchestrator.machine.ownership import give_to_caller

ROUNDS = 2
"""Over all systems: what failed or came out undecided twice is made again at the end, when a neighbour that took this
machine's cores may have gone."""


@dataclass(frozen=True)
class Places:
    """What is read and written."""

    runs: Path = RUNS_ROOT
    results: Path = FOLDER
    pages: Path = PAGES
    table: Path = overview.PAGE
    artifact: Path = overview.ARTIFACT
    readme: Path = overview.README


@dataclass(frozen=True)
class Ended:
    """Result of a system as it stands, and what could not be made."""

    content: dict[str, Any]
    failures: list[str]
    is_repeat_there: bool = True
    """False: the repeat that was asked for is not complete, or its runs decide nothing."""


def main(argv: Sequence[str] | None = None) -> int:
    asked = _arguments(argv)
    places = Places(asked.runs, asked.results, asked.pages, asked.table, asked.artifact, asked.readme)
    try:
        kept = Kept(places.runs)
        systems = find_systems(asked.system)
        extent = {"full": asked.full, "seeds": asked.seeds}
        most_s = MAX_S if asked.system else None  # who asks for all has the time for it
        plans = [plan_of(one, kept, **extent, again=asked.again, most_s=most_s) for one in systems]
        if len(plans) > 1 and not (asked.again or asked.full or asked.seeds):
            fewest = min(plan.repeats for plan in plans)  # so that an interrupted call goes on where it was
            plans = [plan_of(one, kept, most_s=most_s, repeat=fewest - 1) for one in systems]
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
        all_of = [overview.Recorded(*each) for each in zip(systems, contents, strict=True)]
        _say("\n" + overview.ledger_table(all_of) + "\n")
    for system, content in zip(systems, contents, strict=True):
        _say(outcome.last_line(system, content))
    # what failed beside a repeat that counts is told, and honest
    is_without = any(not one.is_repeat_there for one in ended.values())
    return EXIT_FAILED if is_without and not asked.tables else EXIT_COMPLETED


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m experiments.reproductions",
        description="One repeat of one paper's system against its baselines.",
    )
    parser.add_argument("system", nargs="?", metavar="SYSTEM", help="a folder next to this file; all without")
    extent = parser.add_mutually_exclusive_group()
    extent.add_argument("--full", action="store_true", help="all cases, arms and repeats, however long they take")
    extent.add_argument("--seeds", action="store_true", help="all three repeats of the usual cases, without a limit")
    parser.add_argument("--again", action="store_true", help="repeat the last existing repeat")
    text = "print what would be made and how long it takes, and end; --plan is the older name"
    parser.add_argument("--dry-run", "--plan", action="store_true", dest="plan", help=text)
    parser.add_argument("--tables", action="store_true", help="make no run: write what those that are there say")
    parser.add_argument("--share", action="store_true", help="run even if the machine is in use; timing may suffer")
    parser.add_argument("--runs", type=Path, default=RUNS_ROOT, metavar="DIR", help="where runs are kept")
    parser.add_argument("--results", type=Path, default=FOLDER, metavar="DIR", help="takes NAME/result.json")
    parser.add_argument("--pages", type=Path, default=PAGES, metavar="DIR", help="has NAME.md")
    parser.add_argument("--table", type=Path, default=overview.PAGE, metavar="FILE", help="counts the verdicts")
    parser.add_argument(
        "--artifact", type=Path, default=overview.ARTIFACT, metavar="FILE", help="has the map of claims"
    )
    parser.add_argument("--readme", type=Path, default=overview.README, metavar="FILE", help="has the ledger")
    return parser.parse_args(argv)


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def carry_out_all(
    plans: Sequence[Plan], places: Places, kept: Kept, runner: Runner | None, rounds: int, **extent: bool
) -> dict[str, Ended]:
    """Return what became of each system, by name; each round but the first makes what is lacking still.

    Args:
        extent: of later rounds, as `plan_of` has it.

    Raises:
        as `carry_out`.
    """
    ended: dict[str, Ended] = {}
    for _ in range(rounds):
        for plan in plans:
            ended[plan.system.name] = carry_out(plan, places, kept, runner)
            if runner:
                _write_overview(places)
        later = [plan_of(plan.system, kept, **extent, most_s=plan.most_s, repeat=plan.repeat) for plan in plans]
        plans = [plan for plan in later if plan.lacking]
    if not runner:
        _write_overview(places)
    return ended


def carry_out(plan: Plan, places: Places, kept: Kept, runner: Runner | None) -> Ended:
    """Make what a system lacks, and write what is there of it.

    Args:
        runner: makes what lacks; None: nothing is made.

    Raises:
        InputError: a trial asks for what is not there.
        MachineError: this machine cannot make it now.
        Interrupted: somebody stopped it.
    """
    system = plan.system
    _say(f"{system.name}: {repeat_line(plan)}")
    failures = runner.all(plan.lacking, plan.most_s) if runner and plan.lacking else []
    found = [found_of(system, one.trial, kept.find(one)) for one in (*plan.asked, *plan.later)]
    found += [found_of(system, one.trial, kept.find(one), is_asked=False) for one in beyond(plan, kept)]
    made = outcome.result(system, found)
    content = _standing(system, made, places.results / system.folder / "result.json")
    if content is not made:
        stands = f"what stands has {content['repeats']['counted']}, and stays"
        _say(f"{system.name}: {made['standing']} of this code; {stands}")
    _write(system, content, places)
    if content["cases"]:
        _say("\n" + page.cases_table(content) + "\n")
    is_there = made["repeats"]["counted"] >= plan.repeats
    if not is_there:
        why = f"{system.name}: repeat {plan.repeats} is not there: {_why_not(plan, kept)}"
        failures = [*failures, why] if runner else failures
    return Ended(content, failures, is_there)


def _standing(system: System, made: dict[str, Any], path: Path) -> dict[str, Any]:
    """Return what was made, unless what is recorded rests on more repeats, judged as the claim is declared now.

    Raises:
        InputError: what is recorded cannot be read.
    """
    if not path.exists():
        return made
    try:
        recorded = outcome.judged_again(system, read_object(path))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(f"{path}: {error!r}; put it back, or remove it") from error
    return recorded if recorded["repeats"]["counted"] > made["repeats"]["counted"] else made


def _write(system: System, content: dict[str, Any], places: Places) -> None:
    folder = places.results / system.folder
    folder.mkdir(parents=True, exist_ok=True)
    write_json(folder / "result.json", content)
    page.write(system, content, places.pages)
    for path in (folder, places.pages / f"{system.name}.md"):
        give_to_caller(path)


def _why_not(plan: Plan, kept: Kept) -> str:
    undone = [one for one in plan.asked if not kept.is_done(one)]
    never = sum(kept.find(one) is None for one in undone)
    if not undone:
        return "no case has a candidate and all its baselines emulated, at the reference's quality"
    return (
        f"{never} runs are not made yet, {len(undone) - never} came out suspect or invalid;"
        " call it again, and it goes on"
    )


def _write_overview(places: Places) -> None:
    overview.write(places.results, places.table, places.artifact, places.readme)
    for path in (places.table, places.artifact, places.readme):
        give_to_caller(path)


if __name__ == "__main__":
    sys.exit(main())
