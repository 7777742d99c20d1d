"""What to ask about the committed dashboards: their units, reducers and transformations, on values made up here."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from dashboards.interpolate import panels

FOLDER = Path(__file__).resolve().parents[1] / "grafana"
BEYOND = ("partitionByValues",)
"""Transformations that Grafana's server has and @grafana/data has not: the others of a panel are asked about."""
VALUES = (
    *(0, 1, 2, 10, 12.5, 80, 99.9, 999, 1234.5, 60, 90, 174, 3600, 7200, 90000, 0.5, 0.0605, 0.00099, 2.5e-07),
    *(-0.0605, 3.14159, 0.98611, 1 / 3, 1.5e6, 45.3e6, 1.1e9, 2.5e12),
)
ROUNDED = (0, 0.125, 0.99531, -0.0605, 3.935, 25.0)
"""With the decimals that a panel asks for."""
SERIES: tuple[list[Any], ...] = (
    [1, 2],
    [1, 2, None],
    [None, 3, None, None],
    [0],
    [-2.5, 0, None],
    [1, "NaN"],
    ["NaN"],
    [None],
    [],
)
"""Of a reducer; JSON has no number for what is none."""
ROWS = 3
CYCLES = (4, 2, 3)
"""After how many rows the values of a frame's first, second, third label come again, and so on."""

Json = dict[str, Any]


def files() -> list[Path]:
    return sorted(FOLDER.glob("*.json"))


def read_dashboards() -> list[Json]:
    return [json.loads(path.read_text()) for path in files()]


def questions(dashboards: Sequence[Mapping[str, Any]]) -> Json:
    """Each question once, in an order that is always the same; answers.js says what they look like."""
    found = [panel for board in dashboards for panel in panels(board)]
    styles = sorted({style for panel in found for style in _styles(panel)}, key=str)
    units = [[unit, value, None] for unit in sorted({unit for unit, _ in styles}) for value in VALUES]
    units += [[unit, value, places] for unit, places in styles if places is not None for value in ROUNDED]
    calculations = sorted({name for panel in found for name in _calculations(panel)})
    cases = {json.dumps(case, sort_keys=True): case for panel in found for case in _transformations(panel)}
    return {
        "units": units,
        "reducers": [[name, values] for name in calculations for values in SERIES],
        "transformations": [cases[key] for key in sorted(cases)],
    }


def _styles(panel: Mapping[str, Any]) -> Iterator[tuple[str, int | None]]:
    """Unit and decimals, of the panel's fields and of those that it overrides."""
    config = panel.get("fieldConfig") or {}
    defaults = config.get("defaults") or {}
    unit, decimals = str(defaults.get("unit") or "none"), defaults.get("decimals")
    yield unit, decimals
    for override in config.get("overrides") or ():
        given = {one["id"]: one.get("value") for one in override["properties"]}
        yield str(given.get("unit") or unit), given.get("decimals", decimals)


def _calculations(panel: Mapping[str, Any]) -> Iterator[str]:
    """Of the panel's values, of its legend and of its footer."""
    options = panel.get("options") or {}
    yield from (options.get("reduceOptions") or {}).get("calcs") or ()
    yield from (options.get("legend") or {}).get("calcs") or ()
    yield from (options.get("footer") or {}).get("reducer") or ()


def _transformations(panel: Mapping[str, Any]) -> Iterator[Json]:
    steps = [step for step in panel.get("transformations") or () if step["id"] not in BEYOND]
    if not steps:
        return
    labels = _labels(steps)
    ref_ids = [str(target["refId"]) for target in panel["targets"]]
    for told in (labels, labels[:1]) if len(ref_ids) > 1 else (labels,):
        frames = [_frame(ref_id, told if place else labels, ref_ids, place) for place, ref_id in enumerate(ref_ids)]
        yield {"steps": steps, "frames": frames}


def _labels(steps: Sequence[Mapping[str, Any]]) -> list[str]:
    """Those that the transformations speak of, in the order that they give."""
    found: dict[str, float] = {}
    for step in steps:
        options = step.get("options") or {}
        named = dict.fromkeys(options.get("excludeByName") or (), 1000) | (options.get("indexByName") or {})
        named |= {options[key]: place for place, key in enumerate(("rowField", "columnField")) if key in options}
        found |= {name: place for name, place in named.items() if not name.startswith(("Time", "Value"))}
    return sorted(found, key=lambda name: (found[name], name))


def _frame(ref_id: str, labels: Sequence[str], ref_ids: Sequence[str], place: int) -> Json:
    """A table as the answer of an instant query is one. Each has a row that the one before has not, and lacks one."""
    rows = range(place, place + ROWS)
    value = f"Value #{ref_id}" if len(ref_ids) > 1 else "Value"
    fields: list[Json] = [{"name": "Time", "type": "time", "values": [1_577_836_860_000 for _ in rows]}]
    for name, cycle in zip(labels, itertools.cycle(CYCLES), strict=False):
        fields.append({"name": name, "type": "string", "values": [f"{name} {row % cycle}" for row in rows]})
    fields.append({"name": value, "type": "number", "values": [10 * place + row + 0.5 for row in rows]})
    return {"refId": ref_id, "fields": fields}
