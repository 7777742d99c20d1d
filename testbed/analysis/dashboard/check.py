"""`python -m testbed.analysis dashboard-check`: every query of every dashboard asked as Grafana would ask it."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dashboards.conventions import faults as broken_conventions
from dashboards.interpolate import Target, panels, targets
from testbed.analysis.dashboard.frames import Frame, reduced, transformed
from testbed.analysis.dashboard.opened import Opened, excuse_of, frames_of, open_dashboard
from testbed.analysis.dashboard.panel_schema import require_known
from testbed.analysis.dashboard.prometheus_queries import PrometheusClient, QueryError, Series
from testbed.core.errors import InputError, raise_input_faults
from testbed.core.files import read_object

DASHBOARDS = Path(__file__).resolve().parents[3] / "dashboards" / "grafana"
_NEEDED = ("uid", "title", "panels", "templating", "time")
_DRAWN = 20
_LABEL = re.compile(r"\{\{\s*(\w+)\s*\}\}")


@dataclass
class Found:
    """What was asked, and what was wrong with it."""

    panels: int = 0
    queries: int = 0
    runs: int = 0
    faults: list[str] = field(default_factory=list)
    excused: list[str] = field(default_factory=list)
    """Queries without an answer, and why that is right."""

    @property
    def text(self) -> str:
        lines = [*self.faults, *(f"may be empty: {line}" for line in self.excused)]
        asked = f"{self.queries} queries of {self.panels} panels asked about {self.runs} runs"
        return "\n".join([*lines, f"{asked}: {len(self.faults)} faults"])


def check(source: PrometheusClient, folder: Path = DASHBOARDS) -> Found:
    """Of every dashboard, all that is wrong at once.

    Raises:
        InputError: no dashboards, or no runs to ask about.
        QueryError: Prometheus does not answer at all.
    """
    found = Found()
    for dashboard in read_dashboards(folder):
        found.faults += broken_conventions(dashboard)
        # one run may rightly lack what another has
        opened = open_dashboard(dashboard, source, take_all=True)
        found.runs = max(found.runs, len(opened.variables["run"]))
        asked = targets(dashboard)
        for panel in panels(dashboard):
            found.panels += 1
            _check_panel(found, opened, panel, [target for target in asked if target.panel_id == panel["id"]])
    return found


def _check_panel(found: Found, opened: Opened, panel: Mapping[str, Any], asked: Sequence[Target]) -> None:
    where = f"{opened.dashboard['title']}, {panel['title']}"
    frames: list[Frame] = []
    is_excused = False
    for target in asked:
        found.queries += 1
        line = f"{where}, query {target.ref_id}"
        try:
            answer = opened.ask(target)
            why = "" if answer else excuse_of(opened, target)
        except (QueryError, KeyError) as error:
            found.faults.append(f"{line}: {error if isinstance(error, QueryError) else f'${error.args[0]} is unknown'}")
            continue
        # a few are enough to find out whether they can be drawn
        frames += frames_of(target, answer, is_only=len(asked) == 1)[:_DRAWN]
        is_excused = is_excused or bool(why)
        if why:
            found.excused.append(f"{line}: {why}")
        found.faults += [f"{line}: {fault}" for fault in ([] if why else _of_answer(target, answer))]
    found.faults += [f"{where}: {fault}" for fault in _missing_columns(panel, frames)]
    try:
        require_known(panel)
        shown = transformed(frames, panel.get("transformations") or (), str(panel["title"]))
        if not _shows_something(panel, shown) and any(frame.rows for frame in frames) and not is_excused:
            found.faults.append(f"{where}: nothing is drawn of what its queries answer")
    except InputError as error:
        found.faults += [f"{where}: {fault}" for fault in error.faults]


def _shows_something(panel: Mapping[str, Any], frames: Sequence[Frame]) -> bool:
    """Return True if Grafana would draw something of a panel's frames, by the panel's type.

    Raises:
        InputError: The panel names columns that there are not, or several tables where one is shown.
    """
    kind, options, where = str(panel["type"]), panel.get("options") or {}, panel["title"]
    rows = [frame for frame in frames if frame.rows]
    if kind == "xychart":
        names = [one[axis]["matcher"]["options"] for one in options["series"] for axis in ("x", "y")]
        columns = [[frame.named(name) for name in names] for frame in rows]
        lacking = {name for found in columns for name, one in zip(names, found, strict=True) if one is None}
        raise_input_faults(f"no column {name}" for name in sorted(lacking))
        values = [[one.values for one in found if one] for found in columns]
        return any(None not in pair for found in values for pair in zip(*found, strict=True))
    if kind == "table" and len(rows) > 1:
        raise InputError(f"{where}: {len(rows)} tables, of which Grafana would show the first alone")
    if kind == "table":
        sorted_by = [str(rule["displayName"]) for rule in options.get("sortBy") or ()]
        raise_input_faults(
            f"sorted by {name}, which is no column" for f in rows for name in sorted_by if not f.named(name)
        )
    if kind == "barchart" and rows and rows[0].named(options["xField"]) is None:
        raise InputError(f"{where}: no column {options['xField']}")
    if kind in ("stat", "bargauge"):
        (calculation,) = options["reduceOptions"]["calcs"]
        return any(reduced(frame.fields[1].values, calculation) is not None for frame in rows)
    return bool(rows)


def read_dashboards(folder: Path = DASHBOARDS) -> list[dict[str, Any]]:
    """Return the dashboards of a folder.

    Raises:
        InputError: No dashboards there, or a file that is none.
    """
    found, faults = [], []
    for path in sorted(folder.glob("*.json")):
        try:
            found.append(read_object(path))
        except (OSError, ValueError) as error:
            faults.append(f"{path}: is no dashboard: {error}")
            continue
        if lacking := [key for key in _NEEDED if key not in found[-1]]:
            faults.append(f"{path}: is no dashboard: has no {', '.join(lacking)}")
    raise_input_faults(faults)
    if not found:
        raise InputError(f"{folder}: no dashboards (*.json) there")
    return found


def _of_answer(target: Target, answer: Sequence[Series]) -> Iterator[str]:
    if not answer:
        yield "no series"
    strange = [series for series in answer if not all(math.isfinite(value) for _, value in series.points)]
    if strange:
        yield f"{len(strange)} of {len(answer)} series are not numbers throughout, as that of {dict(strange[0].labels)}"
    for label in dict.fromkeys(_LABEL.findall(target.legend)):
        if any(label not in series.labels for series in answer):
            yield f"named after the label {label}, which its series do not have"


def _missing_columns(panel: Mapping[str, Any], frames: Sequence[Frame]) -> Iterator[str]:
    """Columns that `organize` gives a place, and no query has: Grafana would say nothing of it."""
    there = {one.name for frame in frames for one in frame.fields}
    for step in panel.get("transformations") or ():
        wanted = (step.get("options") or {}).get("indexByName") or {} if step["id"] == "organize" else {}
        if any(frame.rows for frame in frames):
            yield from (f"no column {name}" for name in wanted if name not in there)
