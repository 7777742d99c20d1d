"""What came of a sweep: a row for each of its configurations over the seeds, as text, JSON and CSV, and its page.

Rows are told apart by the axes of the sweep but the seed. A run that does not count (invalid, failed) is counted among
the verdicts and gives no value.
"""

from __future__ import annotations

import csv
import io
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from testbed.analysis.comparison.comparison import INTERVAL, MISSING, PARTIAL, spoken_estimate
from testbed.analysis.comparison.groups import BELIEVED, MEASURES, Group, Measure, group_of
from testbed.analysis.comparison.intervals import Estimate
from testbed.analysis.comparison.tables import interval
from testbed.analysis.record.identity import kind_of, spoken_kind, verdict_of
from testbed.analysis.record.record import Record, load
from testbed.analysis.style.text_table import aligned
from testbed.core.errors import InputError
from testbed.core.files import printable, spreadsheet_safe
from testbed.core.record.summary import VERDICTS

SCHEMA_VERSION = 1
"""Of results.json."""
SEED = "seed"
FAILED, NOT_MADE = "failed", "not made"
OUTCOMES = (*VERDICTS, FAILED, NOT_MADE)


@dataclass(frozen=True)
class Row:
    values: Mapping[str, str]
    """By axis; of those of `Sweep.axes` that its runs have."""
    outcomes: Mapping[str, int]
    """How many of its points came to what."""
    group: Group | None
    """None where there is no run at all."""

    def value(self, measure: Measure) -> Estimate | None:
        return None if self.group is None else self.group.value(measure)

    @property
    def run_ids(self) -> list[str]:
        return [] if self.group is None else [record.run_id for record in self.group.taken]

    @property
    def seeds(self) -> list[int]:
        return [] if self.group is None else self.group.seeds()


@dataclass(frozen=True)
class Sweep:
    name: str
    axes: tuple[str, ...]
    """Those in which rows differ."""
    rows: tuple[Row, ...]
    records: tuple[Record, ...]
    """Each once, though several points may ask for it."""
    points: tuple[Mapping[str, Any], ...]

    @property
    def common(self) -> dict[str, str]:
        """Values that all points share; the seed is one of them where there is a single one."""
        found = [point["values"] for point in self.points]
        return {key: value for key, value in found[0].items() if all(one.get(key) == value for one in found)}


def read_sweep(question: Mapping[str, Any], runs_root: Path) -> Sweep:
    """
    Args:
        question: {"name", "axes": [keys in order], "points": [{"values": {key: text}, "run_id", ...}]}; `run_id` of the
            run that stands for it, null where there is none.

    Raises:
        InputError: it is none, or a run cannot be read; with every fault.
    """
    try:
        name, keys, points = str(question["name"]), list(question["axes"]), list(question["points"])
        run_ids = dict.fromkeys(point["run_id"] for point in points if point["run_id"] is not None)
        by_row: dict[tuple[str | None, ...], list[Mapping[str, Any]]] = {}
        for point in points:
            by_row.setdefault(tuple(point["values"].get(key) for key in keys if key != SEED), []).append(point)
    except (KeyError, TypeError, AttributeError) as error:
        raise InputError(f"sweep: not what is asked of a sweep: {type(error).__name__}: {error}") from error
    if not points:
        raise InputError("sweep: it has no runs")
    records = _records(run_ids, runs_root)
    named = [key for key in keys if key != SEED]
    varying = [key for place, key in enumerate(named) if len({values[place] for values in by_row}) > 1]
    rows = tuple(_row(found, varying, records) for found in by_row.values())
    return Sweep(name, tuple(varying), rows, tuple(records.values()), tuple(points))


def _records(run_ids: Mapping[str, None], runs_root: Path) -> dict[str, Record]:
    found: dict[str, Record] = {}
    faults: list[str] = []
    for run_id in run_ids:
        try:
            found[run_id] = load(runs_root / run_id)
        except InputError as error:
            faults += error.faults
    if faults:
        raise InputError(*faults)
    return found


def _row(points: Sequence[Mapping[str, Any]], varying: Sequence[str], records: Mapping[str, Record]) -> Row:
    found = [records[point["run_id"]] for point in points if point["run_id"] is not None]
    outcomes = Counter(outcome_of(records.get(point["run_id"])) for point in points)
    completed = list(dict.fromkeys(record.run_id for record in found))
    group = group_of([records[run_id] for run_id in completed]) if completed else None
    values = {key: points[0]["values"][key] for key in varying if key in points[0]["values"]}
    return Row(values, {outcome: outcomes[outcome] for outcome in OUTCOMES if outcomes[outcome]}, group)


def outcome_of(record: Record | None) -> str:
    """One of `OUTCOMES`."""
    if record is None:
        return NOT_MADE
    has_completed = (record.summary or {}).get("status") == "completed"
    return verdict_of(record) if has_completed else FAILED


def text(sweep: Sweep) -> str:
    """Columns aligned by spaces, and what they mean; missing is a dash."""
    metric = {row.group.metric_name for row in sweep.rows if row.group} - {None}
    best = f"best {metric.pop()}" if len(metric) == 1 else "best"
    names = [best if measure.key == "metric_best" else measure.heading for measure in MEASURES]
    lines = aligned([[*sweep.axes, "seeds", "verdicts", *names], *(_cells(sweep, row) for row in sweep.rows)])
    return "\n".join([*lines, "", *(printable(line) for line in remarks(sweep))])


def _cells(sweep: Sweep, row: Row) -> list[str]:
    words = [f"{count} {outcome}" for outcome, count in row.outcomes.items()]
    values = [_spoken(row, measure) for measure in MEASURES]
    return [*(row.values.get(key, MISSING) for key in sweep.axes), str(len(row.seeds)), ", ".join(words), *values]


def _spoken(row: Row, measure: Measure) -> str:
    found = row.value(measure)
    return MISSING if found is None else spoken_estimate(found, measure, len(row.run_ids))


def remarks(sweep: Sweep) -> list[str]:
    """What stands under the table."""
    found = [_spoken_kinds(sweep.records)] if sweep.records else []
    if sweep.common:
        found.append(f"{', '.join(f'{key} {value}' for key, value in sweep.common.items())}.")
    if any(len(row.seeds) > 1 for row in sweep.rows):
        found.append(f"Mean ± half the {INTERVAL}; one seed has no interval.")
    partial = [row for row in sweep.rows for one in MEASURES if (v := row.value(one)) and v.runs < len(row.run_ids)]
    if partial:
        found.append(PARTIAL)
    if any(outcome not in BELIEVED for row in sweep.rows for outcome in row.outcomes):
        found.append("Runs that are invalid, failed or not made give no value.")
    return found


def _spoken_kinds(records: Sequence[Record]) -> str:
    counts = sorted(Counter(spoken_kind(kind_of(record)) for record in records).items())
    if len(counts) == 1:
        return f"All runs are {counts[0][0]}."
    return f"Of the runs {', '.join(f'{count} are {kind}' for kind, count in counts)}."


def to_json(sweep: Sweep) -> dict[str, Any]:
    return {
        "schema_version": SCHEMA_VERSION,
        "name": sweep.name,
        "interval": INTERVAL,
        "axes": list(sweep.axes),
        "common": sweep.common,
        "rows": [_object(row) for row in sweep.rows],
        "points": [
            {**point, "outcome": outcome} for point, outcome in zip(sweep.points, _outcomes(sweep), strict=True)
        ],
    }


def _outcomes(sweep: Sweep) -> list[str]:
    by_id = {record.run_id: record for record in sweep.records}
    return [outcome_of(by_id.get(point["run_id"])) for point in sweep.points]


def _object(row: Row) -> dict[str, Any]:
    values = {measure.key: interval(row.value(measure)) for measure in MEASURES}
    name = row.group.metric_name if row.group else None
    kinds = sorted({kind_of(record) for record in row.group.records}) if row.group else []
    kind = ", ".join(kinds) or None
    told = {"kind": kind, "metric_name": name, "seeds": row.seeds, "outcomes": dict(row.outcomes)}
    return {"axes": dict(row.values), **told, "run_ids": row.run_ids, "values": values}


def to_csv(sweep: Sweep) -> str:
    """A line for each row; what is missing is empty."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    parts = ("mean", "low", "high")
    values = [f"{measure.key}_{part}" for measure in MEASURES for part in parts]
    counted = [outcome.replace(" ", "_") for outcome in OUTCOMES]
    writer.writerow([*sweep.axes, "metric_name", "seeds", "runs", *counted, *values, "run_ids"])
    for row in sweep.rows:
        cells: list[Any] = [row.values.get(key) for key in sweep.axes]
        cells += [row.group.metric_name if row.group else None, len(row.seeds), len(row.run_ids)]
        cells += [row.outcomes.get(outcome, 0) for outcome in OUTCOMES]
        cells += [getattr(row.value(measure), part, None) for measure in MEASURES for part in parts]
        cells.append(" ".join(row.run_ids))
        writer.writerow([spreadsheet_safe(cell) for cell in cells])
    return out.getvalue()
