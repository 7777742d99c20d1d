"""Sweeps of a folder of runs, by the results that each keeps, and one measure of them along one axis."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from testbed.analysis.comparison.groups import MEASURES
from testbed.analysis.figures.methods import MAX_LETTERS, even_pieces
from testbed.analysis.figures.table import Axis, Figure, Panel, Series, padded
from testbed.analysis.record.record import is_finite
from testbed.analysis.style.series_style import Method, styles_for
from testbed.core.errors import InputError
from testbed.core.files import read_object
from testbed.core.units import column_unit

FOLDER = ".sweeps"
RESULTS = "results.json"
_NUMBER = re.compile(r"([-+0-9.eE]+)\s*(\S*)")
_KINDS = {measure.key: measure.kind for measure in MEASURES}
_NAME = re.compile(r"[A-Za-z0-9][\w.+-]{0,120}")


def sweep_names(runs_root: Path) -> list[str]:
    """Return the names of the sweeps that have results."""
    return sorted(path.parent.name for path in (runs_root / FOLDER).glob(f"*/{RESULTS}"))


def read_results(runs_root: Path, name: str) -> dict[str, Any]:
    """Return `results.json` of a sweep.

    Raises:
        InputError: There is no such sweep, or its results cannot be read.
    """
    path = runs_root / FOLDER / name / RESULTS
    if not _NAME.fullmatch(name) or not path.is_file():
        raise InputError(f"sweep {name}: no results in {runs_root / FOLDER}; make sweep SWEEP=NAME writes them")
    try:
        found = read_object(path)
        has_rows = all("axes" in row and "values" in row for row in found.get("rows", [{}]))
        if not has_rows or not isinstance(found.get("axes"), list):
            raise ValueError("its axes or rows are missing")
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(f"sweep {name}: {RESULTS} cannot be read: {error}") from error
    return found


def along_axis(results: Mapping[str, Any], axis: str, measure: str) -> Figure:
    """Return one measure over the values of one axis; rows that are alike in the other axes are one series.

    Raises:
        InputError: The sweep has no such axis, or no table has such a measure.
    """
    faults = [f"axis {axis!r} is unknown; known: {', '.join(results['axes'])}"] * (axis not in results["axes"])
    faults += [f"measure {measure!r} is unknown; known: {', '.join(_KINDS)}"] * (measure not in _KINDS)
    if faults:
        raise InputError(*faults)
    rows = [row for row in results["rows"] if axis in row["axes"] and _mean(row, measure) is not None]
    places = _places(list(dict.fromkeys(row["axes"][axis] for row in rows)))
    factor, unit = column_unit([_mean(row, measure) or 0.0 for row in rows], _KINDS[measure])
    by_label: dict[str, list[Mapping[str, Any]]] = defaultdict(list)
    for row in rows:
        others = [value for key, value in row["axes"].items() if key != axis]
        by_label[" ".join(others) or str(results.get("name"))].append(row)
    series: list[Series] = []
    for labels in even_pieces(list(by_label)):
        styles = styles_for([Method("ddp", "none", label) for label in labels])
        by_name = {method.setting: style for method, style in styles.items()}
        series += [_series(label, by_label[label], axis, measure, places, factor, by_name[label]) for label in labels]
    names = tuple(text for text, _ in sorted(places.items(), key=lambda pair: pair[1]))
    is_numeric = any(value != place for place, value in enumerate(places.values()))
    x = Axis(axis, (-0.5, max(len(names), 1) - 0.5), categories=names)
    if is_numeric:
        of_axis = _NUMBER.fullmatch(names[0].strip())
        words = f"{axis} ({of_axis[2]})" if of_axis and of_axis[2] else axis
        x = Axis(words, padded(places.values()), ticks=tuple(sorted(places.values())))
    words = measure.removesuffix("_s").removesuffix("_bytes").replace("_", " ")
    heights = [value for one in series for value in (*one.low, *one.high)]
    y = Axis(f"{words} ({unit})" if unit else words, padded(heights, from_zero=True))
    panels = tuple(Panel("", x, y, tuple(piece)) for piece in even_pieces(series))
    missing = len(results["rows"]) - len(rows)
    notes = ["Mean over seeds; band: 95 % interval."] if any(one.has_band for one in series) else []
    notes += [f"{missing} of {len(results['rows'])} configurations have no such value."] if missing else []
    return Figure("sweep", f"{words} over {axis}", "lines", panels, "", tuple(notes))


def _series(
    label: str,
    rows: Sequence[Mapping[str, Any]],
    axis: str,
    measure: str,
    places: Mapping[str, float],
    factor: float,
    style: Any,
) -> Series:
    found = [(places[row["axes"][axis]], row["values"][measure], row["run_ids"]) for row in rows]
    found.sort(key=lambda one: one[0])
    x = tuple(place for place, *_ in found)
    mid = tuple(value["mean"] / factor for _, value, _ in found)
    low, high = (
        tuple((value["mean"] if value.get(end) is None else value[end]) / factor for _, value, _ in found)
        for end in ("low", "high")
    )
    run_ids = tuple(run_id for *_, ids in found for run_id in ids)
    short = label if len(label) <= MAX_LETTERS else f"{label[: MAX_LETTERS - 1]}…"
    return Series(short, label, "", x, low, mid, high, style, run_ids)


def _mean(row: Mapping[str, Any], measure: str) -> float | None:
    value = (row["values"].get(measure) or {}).get("mean")
    return float(value) if is_finite(value) else None


def _places(texts: Sequence[str]) -> dict[str, float]:
    """Return where each value of an axis stands: numbers of one unit where they are, other texts one by one."""
    numbers = {text: match for text in texts if (match := _NUMBER.fullmatch(text.strip()))}
    if len(numbers) == len(texts) > 1 and len({match[2] for match in numbers.values()}) == 1:
        try:
            return {text: float(match[1]) for text, match in numbers.items()}
        except ValueError:
            pass
    return {text: float(place) for place, text in enumerate(texts)}
