"""How a field is shown: a panel's defaults, and its overrides where they match."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from testbed.analysis.dashboard import units
from testbed.analysis.dashboard.frames import Field, Frame
from testbed.analysis.style import chart, method_style

INK = "#1a1a1a"
COLORS = {"text": INK, "green": "#009E73", "orange": "#E69F00", "red": "#D55E00"}
"""Grafana's names, in the colours that verdicts have on our pages."""
_COLORS = (*chart.OKABE_ITO[:-1], "#6a3d9a")
"""Black is the colour of runs without compression, and of letters."""


class Palette:
    """Colours for what has none of its own: a name keeps the one it was given first, on the whole page."""

    def __init__(self) -> None:
        self._given: dict[str, str] = {}

    def of(self, name: str) -> str:
        return self._given.setdefault(name, _COLORS[len(self._given) % len(_COLORS)])


@dataclass(frozen=True)
class Style:
    """Of one field."""

    unit: str
    decimals: int | None = None
    color: str | None = None
    """None where the panel gives it one of a palette, or one by its value."""
    thresholds: list[tuple[float, str]] = field(default_factory=list)
    """From which value on which colour, ascending."""
    words: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    """Values that stand for a word, and its colour."""
    is_dashed: bool = False
    axis_label: str = ""
    paints_text: bool = False

    def text(self, value: Any) -> str:
        word, _ = self.words.get(_key(value), ("", ""))
        if word:
            return word
        return units.shown(value, self.unit, self.decimals) if isinstance(value, int | float) else str(value or "")

    def color_at(self, value: Any) -> str:
        """By the word that a value stands for, or by thresholds."""
        if (meant := self.words.get(_key(value))) is not None:
            return meant[1]
        if not isinstance(value, int | float):
            return INK
        return next((shade for least, shade in reversed(self.thresholds) if value >= least), INK)


def style_of(panel: Mapping[str, Any], frame: Frame, one: Field) -> Style:
    """Of a field of a panel that `known` has passed."""
    config = panel["fieldConfig"]
    defaults = dict(config.get("defaults") or {})
    found: dict[str, Any] = {
        key: defaults[key] for key in ("unit", "decimals", "mappings", "thresholds", "color") if key in defaults
    }
    for override in config.get("overrides") or ():
        if _matches(override["matcher"], frame, one):
            found |= {each["id"]: each["value"] for each in override["properties"]}
    color = found.get("color") or {}
    return Style(
        unit=str(found.get("unit") or "none"),
        decimals=found.get("decimals"),
        color=shade(color["fixedColor"]) if color.get("mode") == "fixed" else None,
        thresholds=list(_thresholds(found.get("thresholds") or {})),
        words=dict(_words(found.get("mappings") or ())),
        is_dashed="custom.lineStyle" in found,
        axis_label=str(found.get("custom.axisLabel") or ""),
        paints_text=(found.get("custom.cellOptions") or {}).get("type") == "color-text",
    )


def shade(name: str) -> str:
    return COLORS.get(name, name)


def swatch(color: str, dashes: str = "-") -> str:
    """A short line as in the figure, before a name in its legend."""
    gaps = {"-": "", "--": "5 3", ":": "1.5 2.5", "-.": "5 2 1 2"}[dashes]
    return (
        '<svg class="swatch" viewBox="0 0 18 10" width="18" height="10" aria-hidden="true">'
        f'<path d="M0,5H18" stroke="{color}" stroke-width="3" stroke-dasharray="{gaps}"/></svg>'
    )


def dashes_of(place: int) -> str:
    """Of the series that is the `place`-th of its colour: runs of one method share that."""
    return method_style.DASHES[place % len(method_style.DASHES)]


def marker_of(name: str) -> str:
    """Of a series that is a method's, or of the run of one."""
    words = re.split(r"[ -]", name)
    return method_style.plot_style_of(next(filter(method_style.has_place, words), name)).marker


def _matches(matcher: Mapping[str, Any], frame: Frame, one: Field) -> bool:
    kind, wanted = matcher["id"], str(matcher["options"])
    if kind == "byFrameRefID":
        return frame.ref_id == wanted
    if kind == "byName":
        return wanted in (one.name, one.title)
    return re.search(wanted.strip("/"), one.title) is not None


def _thresholds(found: Mapping[str, Any]) -> Iterator[tuple[float, str]]:
    for step in found.get("steps") or ():
        yield (float("-inf") if step.get("value") is None else float(step["value"])), shade(step["color"])


def _words(mappings: Any) -> Iterator[tuple[str, tuple[str, str]]]:
    for mapping in mappings:
        for value, meant in mapping["options"].items():
            yield str(value), (str(meant["text"]), shade(meant["color"]))


def _key(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)
