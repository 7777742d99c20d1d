"""Frames, Grafana's tables of fields, and the transformations of them that our dashboards use.

What each does is as Grafana's documentation has it, and as the panels that use it show.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from testbed.analysis.dashboard.prometheus_queries import Series
from testbed.core.errors import InputError

TIME = "Time"
VALUE = "Value"


@dataclass(frozen=True)
class Field:
    """A column. `shown` is what a reader calls it; overrides find it by both names."""

    name: str
    values: list[Any]
    shown: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)

    @property
    def title(self) -> str:
        return self.shown or self.name

    @property
    def is_number(self) -> bool:
        return self.name != TIME and any(isinstance(value, int | float) for value in self.values)


@dataclass(frozen=True)
class Frame:
    """What one query answered, or what became of it."""

    ref_id: str
    fields: list[Field]
    name: str = ""

    @property
    def rows(self) -> int:
        return len(self.fields[0].values) if self.fields else 0

    def named(self, name: str) -> Field | None:
        return next((one for one in self.fields if name in (one.name, one.title)), None)


def series_frame(ref_id: str, series: Series, shown: str) -> Frame:
    """Of the format `time_series`: a frame for each series."""
    times, values = [time_s for time_s, _ in series.points], [value for _, value in series.points]
    return Frame(ref_id, [Field(TIME, times), Field(VALUE, values, shown, series.labels)], shown)


def table_frame(ref_id: str, found: Sequence[Series], *, is_only: bool) -> Frame:
    """Of the format `table`: one frame, a row for each sample and a column for each label.

    Args:
        is_only: the panel has no other query; with others, the column of values is named after its query.
    """
    labels = sorted({name for series in found for name in series.labels})
    rows = [(time_s, value, series.labels) for series in found for time_s, value in series.points]
    fields = [Field(TIME, [time_s for time_s, _, _ in rows])]
    fields += [Field(name, [has.get(name) for _, _, has in rows]) for name in labels]
    fields.append(Field(VALUE if is_only else f"{VALUE} #{ref_id}", [value for _, value, _ in rows]))
    return Frame(ref_id, fields)


def transformed(frames: Sequence[Frame], steps: Sequence[Mapping[str, Any]], where: str) -> list[Frame]:
    """`frames` after a panel's transformations, in their order.

    Raises:
        InputError: one of them, or an option of one, is not known here.
    """
    found = list(frames)
    for step in steps:
        known = _TRANSFORMATIONS.get(str(step.get("id")))
        if known is None:
            raise InputError(f"{where}: no transformation {step.get('id')} is known here")
        change, options = known
        given = dict(step.get("options") or {})
        strange = sorted({*(set(step) - {"id", "options"}), *(set(given) - set(options))})
        if strange:
            raise InputError(f"{where}: transformation {step['id']} has no {', '.join(strange)} here")
        found = change(found, given)
    return found


def reduced(values: Sequence[Any], calculation: str) -> Any:
    """The one value that a panel shows of a series; None if it shows none.

    Raises:
        InputError: no such calculation is known here.
    """
    if calculation != "lastNotNull":
        raise InputError(f"calculation {calculation} is not known here")
    # a number that is none is unlike itself
    return next((value for value in reversed(values) if value is not None and value == value), None)


def _merge(frames: list[Frame], options: Mapping[str, Any]) -> list[Frame]:
    """One table of all. Rows become one where they agree in what all frames have, and contradict each other nowhere."""
    names = list(dict.fromkeys(one.name for frame in frames for one in frame.fields))
    shared = [name for name in names if all(frame.named(name) for frame in frames)]
    if not shared:
        return frames
    rows: list[dict[str, Any]] = []
    by_key: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for frame in frames:
        for index in range(frame.rows):
            row = {one.name: one.values[index] for one in frame.fields if one.values[index] is not None}
            alike = by_key.setdefault(tuple(row.get(name) for name in shared), [])
            agreeing = [other for other in alike if all(other.get(name, row[name]) == row[name] for name in row)]
            for other in agreeing:
                other.update(row)
            if not agreeing:
                alike.append(row)
                rows.append(row)
    return [Frame("", [Field(name, [row.get(name) for row in rows]) for name in names])]


def _organize(frames: list[Frame], options: Mapping[str, Any]) -> list[Frame]:
    """Columns left out, in order, and renamed; those without a place in the order come last."""
    if options.get("includeByName"):
        raise InputError("transformation organize: includeByName is not known here")
    left_out, order, names = (options.get(key) or {} for key in ("excludeByName", "indexByName", "renameByName"))
    made = []
    for frame in frames:
        kept = [one for one in frame.fields if not left_out.get(one.name)]
        kept.sort(key=lambda one: order.get(one.name, len(order)))
        made.append(replace(frame, fields=[replace(one, shown=names.get(one.name, one.shown)) for one in kept]))
    return made


def _partition(frames: list[Frame], options: Mapping[str, Any]) -> list[Frame]:
    """A frame for each combination of values of some columns, which also stands behind the other columns' names."""
    made: list[Frame] = []
    for frame in frames:
        keys = [one for name in options.get("fields") or () if (one := frame.named(name))]
        rows: dict[tuple[Any, ...], list[int]] = {}
        for index in range(frame.rows):
            rows.setdefault(tuple(one.values[index] for one in keys), []).append(index)
        others = [one for one in frame.fields if options.get("keepFields") or one not in keys]
        for values, indexes in rows.items():
            name = " ".join(str(value) for value in values)
            fields = [
                replace(one, values=[one.values[index] for index in indexes], shown=f"{one.title} {name}")
                for one in others
            ]
            made.append(Frame(frame.ref_id, fields, name))
    return made


def _matrix(frames: list[Frame], options: Mapping[str, Any]) -> list[Frame]:
    """A row for each value of one column, a column for each of another."""
    column, row, value = (str(options[key]) for key in ("columnField", "rowField", "valueField"))
    if options.get("emptyValue", "null") != "null" or len(frames) != 1:
        raise InputError("transformation groupingToMatrix: one frame, and null where there is no value, is known here")
    fields = [frames[0].named(name) for name in (row, column, value)]
    cells = list(zip(*(one.values if one else () for one in fields), strict=False))
    rows, columns = (list(dict.fromkeys(cell[place] for cell in cells)) for place in (0, 1))
    found = {(at, across): content for at, across, content in cells}
    made = [Field(f"{row}\\{column}", rows)]
    made += [Field(str(across), [found.get((at, across)) for at in rows]) for across in columns]
    return [Frame(frames[0].ref_id, made)]


_Change = Callable[[list[Frame], Mapping[str, Any]], list[Frame]]
_TRANSFORMATIONS: dict[str, tuple[_Change, tuple[str, ...]]] = {
    "merge": (_merge, ()),
    "organize": (_organize, ("excludeByName", "includeByName", "indexByName", "renameByName")),
    "partitionByValues": (_partition, ("fields", "keepFields")),
    "groupingToMatrix": (_matrix, ("columnField", "rowField", "valueField", "emptyValue")),
}
