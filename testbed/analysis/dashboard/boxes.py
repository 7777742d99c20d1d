"""Panels that are marked up rather than drawn: big numbers, bars, tables, legends."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from testbed.analysis.dashboard.fields import COLORS, INK, Style
from testbed.analysis.dashboard.frames import Frame
from testbed.analysis.style import html_page
from testbed.core.errors import InputError

LEGEND_ENTRIES = 16
_TEXT = {COLORS["green"]: "#00704f", COLORS["orange"]: "#8a5a00", COLORS["red"]: "#b04400"}
"""The same colours as letters, dark enough on white."""


@dataclass(frozen=True)
class Entry:
    """One value: of a series, or a part of a bar."""

    name: str
    value: float
    style: Style
    color: str


def numbers(entries: Sequence[Entry], *, on_background: bool) -> str:
    """Big ones; with names where there are several."""
    tiles = []
    for entry in entries:
        shade = entry.style.color_at(entry.value)
        name = f'<span class="of">{html_page.text(entry.name)}</span>' if len(entries) > 1 else ""
        if on_background and shade != INK:
            look = f' style="background:{html_page.text(shade)}"'
        else:
            look = f' style="color:{html_page.text(_TEXT.get(shade, shade))}"'
        tiles.append(f'<div class="tile"{look}>{name}<b>{html_page.text(entry.style.text(entry.value))}</b></div>')
    return f'<div class="tiles{"" if len(entries) > 1 else " one"}">{"".join(tiles)}</div>'


def bars(entries: Sequence[Entry], minimum: float, maximum: float | None) -> str:
    """A bar each, as long as the value beside the largest."""
    most = maximum if maximum is not None else max((entry.value for entry in entries), default=1.0)
    span = most - minimum if most > minimum else 1.0
    rows = []
    for entry in entries:
        share = min(1.0, max(0.0, (entry.value - minimum) / span))
        rows.append(_bar(entry.name, entry.style.text(entry.value), [(entry.color, share)]))
    return f'<div class="bars">{"".join(rows)}</div>'


def stacked_bars(rows: Iterable[tuple[str, Sequence[Entry]]], minimum: float, maximum: float | None) -> str:
    """A bar for each row, a part for each of its values."""
    found = list(rows)
    sums = [sum(entry.value for entry in parts) for _, parts in found]
    span = (maximum if maximum is not None else max(sums, default=1.0)) - minimum
    made = []
    for name, parts in found:
        shares = [(entry.color, max(0.0, entry.value / span) if span > 0 else 0.0) for entry in parts]
        said = ", ".join(f"{entry.name} {entry.style.text(entry.value)}" for entry in parts)
        made.append(_bar(name, "", shares, said))
    return f'<div class="bars">{"".join(made)}</div>'


def table(
    frame: Frame, styles: Mapping[str, Style], sort_by: Sequence[Mapping[str, Any]], links: Mapping[str, str]
) -> str:
    """
    Args:
        styles: by the columns' titles.
        links: pages by values of the column `run`.
    """
    order = list(range(frame.rows))
    for rule in reversed(sort_by):
        column = frame.named(str(rule["displayName"]))
        if column is None:
            raise InputError(f"sorted by {rule['displayName']}, which is no column")
        values = column.values
        there = [index for index in order if values[index] is not None]
        there.sort(key=lambda index: values[index], reverse=bool(rule.get("desc")))
        order = there + [index for index in order if values[index] is None]
    rows = [[_cell(one.title, one.values[index], styles[one.title], links) for one in frame.fields] for index in order]
    right = [one.title for one in frame.fields if one.is_number]
    kind = "lines runs" if frame.fields[0].title == "run" else "lines"
    return html_page.table([one.title for one in frame.fields], rows, numbers=right, kind=kind)


def legend(entries: Sequence[tuple[str, str]]) -> str:
    """Of (name, swatch); as many as can be read, and how many more there are."""
    items = [f"<li>{picture}{html_page.text(name)}</li>" for name, picture in entries[:LEGEND_ENTRIES]]
    if (more := len(entries) - LEGEND_ENTRIES) > 0:
        items.append(f'<li class="note">and {more} more</li>')
    return f'<ul class="legend" tabindex="0">{"".join(items)}</ul>'


def _bar(name: str, value: str, parts: Sequence[tuple[str, float]], said: str = "") -> str:
    filled = "".join(
        f'<i style="width:{100 * share:.2f}%;background:{html_page.text(color)}"></i>' for color, share in parts
    )
    title = f' title="{html_page.text(said)}"' if said else ""
    return (
        f'<div class="bar"{title}><span>{html_page.text(name)}</span><b>{html_page.text(value)}</b>'
        f'<div class="track">{filled}</div></div>'
    )


def _cell(title: str, value: Any, style: Style, links: Mapping[str, str]) -> object:
    if value is None:
        return ""
    said = style.text(value)
    if title == "run" and value in links:
        return html_page.Html(f'<a href="{html_page.text(links[value])}">{html_page.text(said)}</a>')
    shade = style.color_at(value) if style.paints_text else INK
    if shade == INK:
        return said
    return html_page.Html(f'<b style="color:{html_page.text(_TEXT.get(shade, shade))}">{html_page.text(said)}</b>')
