"""Figure of the use of links over time, in percent of the target rate."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

import numpy as np

from testbed.analysis.comparison.groups import Group
from testbed.analysis.figures.bands import curve_band
from testbed.analysis.figures.curves import band_notes, row_series
from testbed.analysis.figures.methods import Facet, Row, even_pieces, facets, kind_word
from testbed.analysis.figures.table import Axis, Figure, Panel, Series, padded, time_unit
from testbed.analysis.record.identity import seed_of
from testbed.analysis.record.record import Direction, Point, Record, is_finite, spoken_directions
from testbed.analysis.style.series_style import Method, styles_for

_SLICES = 120
"""Number of time slices in which the use of a link is averaged."""
_WHOLE_FROM = 50.0
"""Percent from which on the axis shows all of the target rate; a link that is used less would be a flat line."""
_Drawn = tuple[Row, Direction | None]
"""Row and the direction that it shows; None: all directions together."""
_Samples = dict[Direction, list[tuple[float, float, float]]]
"""(t_s, bytes that had left, bytes that the target rate allows by then) of each WAN direction."""


def link_use(groups: Sequence[Group], band: str, _target: float | None) -> Figure:
    """Return how much of the target rate leaves the WAN links: of one configuration each direction, of several all."""
    samples = {record.run_id: _samples(record) for group in groups for record in group.taken}
    found: list[tuple[Facet, list[_Drawn]]]
    if len(groups) == 1:
        found, title = _by_direction(groups[0], samples), "direction"
    else:
        together, title = facets(groups)
        found = [(facet, [(row, None) for row in facet.rows]) for facet in together]
    ends = [points[-1][0] for one in samples.values() for points in one.values() if points]
    unit = time_unit(ends)
    panels = []
    x = Axis(unit.label(f"{kind_word(groups)}time"), padded((end_s / unit.factor for end_s in ends), from_zero=True))
    for facet, rows in found:
        series = [one for row, way in rows if (one := _series(row, way, samples, band, unit.factor)).x]
        if series:
            top = max(value for one in series for value in one.high)
            top = max(100.0, top) if top >= _WHOLE_FROM else top or 100.0
            y = Axis("WAN link use (% of target rate)", (0.0, 1.05 * top))
            panels.append(Panel(facet.title, x, y, tuple(series)))
    return Figure("link_use", "use of WAN links", "lines", tuple(panels), title, tuple(band_notes(panels, band)))


def _by_direction(group: Group, samples: Mapping[str, _Samples]) -> list[tuple[Facet, list[_Drawn]]]:
    ways = sorted({way for record in group.taken for way in samples[record.run_id]})
    words = spoken_directions(ways)
    found = []
    for piece in even_pieces(ways):
        # A direction is no method; as settings of one they get colours, markers and dashes of their own.
        names = {way: Method("ddp", "none", words[way]) for way in piece}
        styles = styles_for(list(names.values()))
        rows: list[_Drawn] = [(Row(name, (group,), words[way], styles[name]), way) for way, name in names.items()]
        found.append((Facet("", tuple(row for row, _ in rows)), rows))
    return found


def _samples(record: Record) -> _Samples:
    found: _Samples = defaultdict(list)
    allowed: dict[Direction, float] = defaultdict(float)
    for event in record.of_kind("link"):
        if event["wan"] and event["t_s"] >= 0 and is_finite(event["wire_bytes"]) and is_finite(event["rate_bit_s"]):
            way = event["name"], event["from"], event["to"]
            before_s = found[way][-1][0] if found[way] else 0.0
            allowed[way] += event["rate_bit_s"] / 8 * (event["t_s"] - before_s)
            found[way].append((event["t_s"], event["wire_bytes"], allowed[way]))
    return dict(found)


def _series(row: Row, way: Direction | None, samples: Mapping[str, _Samples], band: str, factor: float) -> Series:
    of_seed: dict[int, list[list[Point]]] = defaultdict(list)
    for record in (record for group in row.groups for record in group.taken):
        mine = samples[record.run_id]
        chosen = list(mine.values()) if way is None else [mine[way]] if way in mine else []
        of_seed[seed_of(record)].append([(t_s / factor, share) for t_s, share in _use(chosen)])
    return row_series(row, curve_band(of_seed, band))


def _use(directions: Sequence[Sequence[tuple[float, float, float]]]) -> list[Point]:
    """Return (middle of a time slice, percent of what the directions could carry in it)."""
    if not any(directions):
        return []
    end_s = min(points[-1][0] for points in directions if points)
    count = min(_SLICES, max(len(points) for points in directions))
    grid = np.linspace(0.0, end_s, count + 1)
    sent, allowed = np.zeros(count + 1), np.zeros(count + 1)
    for points in directions:
        # Counting starts at 0 with the first step.
        t_s, wire_bytes, limit = zip((0.0, 0.0, 0.0), *points, strict=True)
        sent += np.interp(grid, t_s, wire_bytes)
        allowed += np.interp(grid, t_s, limit)
    could = np.diff(allowed)
    share = np.divide(100 * np.diff(sent), could, out=np.zeros(count), where=could > 0)
    return [(float(t), float(value)) for t, value in zip((grid[1:] + grid[:-1]) / 2, share, strict=True)]
