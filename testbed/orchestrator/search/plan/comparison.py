"""`longhaul plan --against`: what plans were predicted to take, and what runs of them took."""

from __future__ import annotations

import json
import statistics
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from testbed.core.errors import EXIT_COMPLETED, InputError
from testbed.core.files import read_object
from testbed.core.record.run_directory import RUN_ID, RunDir
from testbed.core.record.spoiled_steps import SpoiledSteps
from testbed.orchestrator.search.plan.rank_agreement import Agreement, agreement
from testbed.orchestrator.terminal.spoken import MISSING, spoken, spoken_time
from testbed.orchestrator.terminal.terminal import show, tell

CHOSEN = "chosen_plan"
_MIN_STEPS = 3


@dataclass(frozen=True)
class Executed:
    """A run of a plan that was chosen."""

    run_id: str
    verdict: str
    chosen: dict[str, Any]
    """The event."""
    measured_s: float
    """Median over steps but the first, in which connections warm up, and the last, which gathers the model: of each the
    rank that took longest."""

    @property
    def predicted_s(self) -> float:
        return float(self.chosen["predicted_s"])

    @property
    def published_s(self) -> float | None:
        value = self.chosen["published_s"]
        return None if value is None else float(value)

    def to_json(self) -> dict[str, Any]:
        return {"run_id": self.run_id, "verdict": self.verdict, "measured_s": self.measured_s, **self.chosen}


def against(run_ids: Sequence[str], runs_root: Path, *, as_json: bool = False) -> int:
    """Print predictions beside measurements, and how well they are in one order; return the exit status.

    Raises:
        InputError: a run is not there, chose no plan, or took too few steps; all of them.
    """
    found, faults = list[Executed](), list[str]()
    for run_id in dict.fromkeys(run_ids):
        try:
            found.append(executed(RunDir(runs_root / run_id)))
        except (OSError, ValueError) as error:
            faults.append(f"--against {run_id}: {error}")
    if faults:
        raise InputError(*faults)
    found.sort(key=lambda one: one.predicted_s)
    ours, theirs = _agreements(found)
    if as_json:
        agreements = {"corrected": vars(ours), "published": None if theirs is None else vars(theirs)}
        tell(json.dumps({"runs": [one.to_json() for one in found], **agreements}, indent=2, allow_nan=False))
    else:
        show(_view(found, ours, theirs))
    return EXIT_COMPLETED


def executed(run: RunDir) -> Executed:
    """
    Raises:
        ValueError: it is no such run.
        OSError: it cannot be read.
    """
    if not RUN_ID.fullmatch(run.run_id):
        raise ValueError("not the id of a run")
    summary = read_object(run.summary)
    chosen: dict[str, Any] | None = None
    steps: dict[int, list[float]] = defaultdict(list)
    spoiled = SpoiledSteps()
    for event in run.read_events():
        spoiled.add(event)
        if event["event"] == CHOSEN:
            chosen = event
        elif event["event"] == "step":
            steps[event["step"]].append(event["step_s"])
    if chosen is None:
        raise ValueError(f"it has no event {CHOSEN}; runs of strategy=hybrid with strategy.plan have one")
    if summary["status"] != "completed" or len(steps) < _MIN_STEPS:
        raise ValueError(f"{summary['status']} after {len(steps)} steps; {_MIN_STEPS} or more are needed")
    gone = spoiled.left_out().steps
    inner = [max(steps[step]) for step in sorted(steps)[1:-1] if step not in gone]
    return Executed(run.run_id, summary["verdict"], chosen, statistics.median(inner))


def _agreements(found: Sequence[Executed]) -> tuple[Agreement, Agreement | None]:
    """Of the corrected model and of the published one, the latter where it knows all schedules."""
    measured = [one.measured_s for one in found]
    published = [one.published_s for one in found if one.published_s is not None]
    ours = agreement([one.predicted_s for one in found], measured)
    return ours, agreement(published, measured) if len(published) == len(found) else None


def _view(found: Sequence[Executed], ours: Agreement, theirs: Agreement | None) -> RenderableType:
    table = Table(box=box.SIMPLE, title="predicted against measured, of a step", title_justify="left")
    for heading in ("run", "verdict", "plan=", "pp", "dp", "tp", "micro-batch", "cuts", "placement"):
        table.add_column(heading)
    for heading in ("predicted", "measured", "predicted / measured", "AMP says"):
        table.add_column(heading, justify="right")
    for one in found:
        chosen = one.chosen
        way = f"{chosen['way']}, {chosen['place']}." if chosen["place"] > 1 else chosen["way"]
        table.add_row(
            one.run_id,
            one.verdict,
            way,
            *(str(chosen[degree]) for degree in ("pp", "dp", "tp", "micro_batch")),
            " ".join(map(str, chosen["cuts"])),
            " ".join(map(str, chosen["placement"])),
            spoken_time(one.predicted_s),
            spoken_time(one.measured_s),
            f"{one.predicted_s / one.measured_s:.2f}",
            spoken_time(one.published_s),
        )
    lines = [Text(_said("corrected model", ours, len(found)))]
    lines += [] if theirs is None else [Text(_said("AMP's own", theirs, len(found)))]
    return Group(table, *lines)


def _said(model: str, found: Agreement, count: int) -> str:
    order = MISSING if found.spearman is None else spoken(found.spearman, "{:.3f}")
    regret = f"its first takes {100 * found.regret:.1f}% longer than the best"
    return f"{model}: Spearman's correlation {order} over {count}; {regret}, which is its {found.best_place}."
