"""What came of a sweep: a row for each of its configurations over the seeds, as text, JSON and CSV, and its page.

Rows are told apart by the axes of the sweep but the seed. A run that does not count (invalid, failed) is counted among
the verdicts and gives no value.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from testbed.analysis.comparison.cells import INTERVAL, MISSING, Measured, Shown, interval_remarks, shown
from testbed.analysis.comparison.groups import BELIEVED, EXPORTED, MEASURES, PROPERTIES, Group, Measure, group_of
from testbed.analysis.comparison.intervals import Estimate
from testbed.analysis.comparison.tables import interval, measured_fields
from testbed.analysis.record.identity import kind_of, spoken_kind, verdict_of
from testbed.analysis.record.record import Record, load
from testbed.core.errors import BROKEN, InputError
from testbed.core.files import printable
from testbed.core.record.summary import VERDICTS
from testbed.core.record.table_formats import aligned, csv_table, latex_table

SCHEMA_VERSION = 1
"""Of results.json."""
SEED = "seed"
METHOD = ("strategy", "compressor")
"""Columns that every table has."""
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
    asked: Mapping[str, Any]
    """First of its points."""

    def estimates(self, measures: Sequence[Measure]) -> dict[str, Estimate | None]:
        """Return the means over seeds by the measure's key."""
        return dict.fromkeys(one.key for one in measures) if self.group is None else self.group.values(measures)

    def named(self, part: str) -> str:
        """Return the name of the strategy or the compressor, by the axis, else by the runs, else by what was asked."""
        return str(self.values.get(part) or self.properties[part] or self.asked.get(part) or MISSING)

    @property
    def properties(self) -> dict[str, Any]:
        """`PROPERTIES` of its runs but the kind; null where there are no runs."""
        found: dict[str, Any] = self.group.properties() if self.group else {}
        return {key: found.get(key) for key in PROPERTIES if key != "kind"}

    @property
    def metric_name(self) -> str | None:
        """Name of the metric of its runs."""
        return self.group.metric_name if self.group else None

    @property
    def run_ids(self) -> list[str]:
        """Ids of the runs that give values."""
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
    except BROKEN as error:
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
    return Row(values, {outcome: outcomes[outcome] for outcome in OUTCOMES if outcomes[outcome]}, group, points[0])


def outcome_of(record: Record | None) -> str:
    """One of `OUTCOMES`."""
    if record is None:
        return NOT_MADE
    has_completed = (record.summary or {}).get("status") == "completed"
    return verdict_of(record) if has_completed else FAILED


def table(sweep: Sweep) -> Shown:
    """Return the table: strategy and compressor of each row, the other axes, and values."""
    axes = [axis for axis in sweep.axes if axis not in METHOD]
    words = [
        [*(row.named(part) for part in METHOD), *(row.values.get(axis, MISSING) for axis in axes)]
        + [str(len(row.seeds)), ", ".join(f"{count} {outcome}" for outcome, count in row.outcomes.items())]
        for row in sweep.rows
    ]
    return shown([*METHOD, *axes, "seeds", "verdicts"], words, _measured(sweep))


def _measured(sweep: Sweep) -> list[Measured]:
    return [Measured(row.estimates(MEASURES), len(row.run_ids), row.metric_name) for row in sweep.rows]


def text(sweep: Sweep) -> str:
    """Return columns aligned by spaces, and what they mean; missing is a dash."""
    found = table(sweep)
    return "\n".join([*aligned([found.headings, *found.rows]), "", *(printable(line) for line in remarks(sweep))])


def latex(sweep: Sweep) -> str:
    """Return a `tabular` for booktabs; what the columns mean are comments."""
    found = table(sweep)
    return latex_table(found.headings, found.rows, found.words, remarks(sweep))


def remarks(sweep: Sweep) -> list[str]:
    """What stands under the table."""
    found = [_spoken_kinds(sweep.records)] if sweep.records else []
    if sweep.common:
        found.append(f"{', '.join(f'{key} {value}' for key, value in sweep.common.items())}.")
    found += interval_remarks(_measured(sweep))
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
    values = {key: interval(found) for key, found in row.estimates(EXPORTED).items()}
    kinds = sorted({kind_of(record) for record in row.group.records}) if row.group else []
    kind = ", ".join(kinds) or None
    told = {"kind": kind, "metric_name": row.metric_name, "seeds": row.seeds, "outcomes": dict(row.outcomes)}
    return {"axes": dict(row.values), **row.properties, **told, "run_ids": row.run_ids, "values": values}


def to_csv(sweep: Sweep) -> str:
    """Return a line for each row with all fields; what is missing is empty."""
    found = [
        row.properties
        | {axis: row.values.get(axis) for axis in sweep.axes}
        | {"metric_name": row.metric_name, "seeds": len(row.seeds), "runs": len(row.run_ids)}
        | {outcome.replace(" ", "_"): row.outcomes.get(outcome, 0) for outcome in OUTCOMES}
        | measured_fields(row.estimates(EXPORTED))
        | {"run_ids": row.run_ids}
        for row in sweep.rows
    ]
    return csv_table(list(found[0]), found)
