"""Boxes on the page of a sweep: each shows and hides what has one value of an axis, by style sheets alone.

Ids and classes are made of numbers, never of what a record says, so that nothing has to be escaped into a style sheet.
A browser that does not know `:has` shows everything.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from testbed.analysis import page
from testbed.analysis.comparison import MISSING
from testbed.analysis.sweep import Sweep

_STYLE = """
.boxes { display: flex; flex-wrap: wrap; align-items: center; gap: .6em; margin: 1em 0; }
.boxes fieldset { border: 1px solid #ccc; padding: .1em .7em .3em; margin: 0; min-width: 0; }
.boxes legend { font-size: 13px; font-weight: 600; overflow-wrap: anywhere; }
.boxes label { display: inline-block; margin-right: .9em; overflow-wrap: anywhere; }
@media print { .boxes button { display: none; } }
"""
_NOTE = (
    "Boxes show and hide rows, runs and curves, and figures of which nothing would be left. The rest stays as it is."
)


@dataclass(frozen=True)
class AxisBoxes:
    axes: Mapping[str, tuple[str, ...]]
    """Those in which rows differ, with their values, as a reader sees them."""
    by_run: Mapping[str, Mapping[str, frozenset[str]]]
    """Run id, then axis: which values asked for the run; several where they came to the same run."""

    @classmethod
    def of(cls, sweep: Sweep) -> AxisBoxes:
        axes = {axis: tuple(dict.fromkeys(row.values.get(axis, MISSING) for row in sweep.rows)) for axis in sweep.axes}
        found: dict[str, dict[str, set[str]]] = defaultdict(lambda: {axis: set() for axis in axes})
        for point in sweep.points:
            if point["run_id"] is not None:
                for axis in axes:
                    found[point["run_id"]][axis].add(point["values"].get(axis, MISSING))
        by_run = {run: {axis: frozenset(values) for axis, values in one.items()} for run, one in found.items()}
        return cls(axes, by_run)

    def markup(self) -> str:
        """Nothing where all rows are alike."""
        if not self.axes:
            return ""
        # of a form that belongs to no dialog, "dialog" sends nothing
        opened = '<form class="boxes" method="dialog" autocomplete="off">'
        sets = "".join(self._fieldset(place, axis) for place, axis in enumerate(self.axes))
        return f'{opened}{sets}<button type="reset">check all</button></form>{page.note(_NOTE)}'

    def _fieldset(self, place: int, axis: str) -> str:
        boxes = "\n".join(
            f'<label><input type="checkbox" id="{_box(place, number)}" checked> {page.text(value)}</label>'
            for number, value in enumerate(self.axes[axis])
        )
        return f"<fieldset><legend>{page.text(axis)}</legend>\n{boxes}</fieldset>\n"

    def style(self, shown: Mapping[str, Iterable[str]]) -> str:
        """Rules by which a class is hidden while, of some axis, no value of its runs is checked.

        Args:
            shown: run ids by class.
        """
        hidden: dict[tuple[str, ...], list[str]] = {}
        for css_class, runs in shown.items():
            told = [self.by_run[run] for run in runs if run in self.by_run]
            for place, (axis, values) in enumerate(self.axes.items()) if told else ():
                wanted = frozenset().union(*(one[axis] for one in told))
                boxes = tuple(_box(place, number) for number, value in enumerate(values) if value in wanted)
                hidden.setdefault(boxes, []).append(f".{css_class}")
        return _STYLE + "".join(
            f"body:not(:has({', '.join(f'#{box}:checked' for box in boxes)})) :is({', '.join(names)})"
            " { display: none; }\n"
            for boxes, names in hidden.items()
        )


def _box(axis: int, value: int) -> str:
    return f"axis-{axis}-{value}"
