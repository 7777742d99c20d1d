"""Boxes on the page of a sweep: each shows and hides what has one value of an axis.

Style sheets hide rows, the page's script hides curves.

Ids and classes are made of numbers, never of what a record says, so that nothing has to be escaped into a style sheet.
A browser that does not know `:has` shows everything.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from testbed.analysis.comparison import sweep
from testbed.analysis.comparison.cells import MISSING
from testbed.analysis.comparison.comparison import compare
from testbed.analysis.comparison.sweep import Sweep
from testbed.analysis.figures import printed
from testbed.analysis.report.comparison_page import comparison_page, report_figures
from testbed.analysis.style import html_page
from testbed.core.errors import InputError
from testbed.core.record.run_directory import write_json

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
    """Axes in which rows differ, with their values, as a reader sees them."""
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
        return f'{opened}{sets}<button type="reset">check all</button></form>{html_page.note(_NOTE)}'

    def _fieldset(self, place: int, axis: str) -> str:
        boxes = "\n".join(
            f'<label><input type="checkbox" id="{_box(place, number)}" checked> {html_page.text(value)}</label>'
            for number, value in enumerate(self.axes[axis])
        )
        return f"<fieldset><legend>{html_page.text(axis)}</legend>\n{boxes}</fieldset>\n"

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

    def ids(self) -> dict[str, list[list[str]]]:
        """Return ids of boxes by run id: the run is shown while one of each list is checked."""
        return {
            run: [
                [_box(place, number) for number, value in enumerate(values) if value in one[axis]]
                for place, (axis, values) in enumerate(self.axes.items())
            ]
            for run, one in self.by_run.items()
        }


def _box(axis: int, value: int) -> str:
    return f"axis-{axis}-{value}"


# Writes the folder of a sweep: its tables, report.html and a file for each figure.


def command(question: Mapping[str, Any], runs_root: Path, output: Path) -> str:
    """The table as text.

    Args:
        question: as of `sweep.read_sweep`.

    Raises:
        InputError: it is none, a run cannot be read, or the folder not be written.
    """
    found = sweep.read_sweep(question, runs_root)
    text = sweep.text(found)
    comparison = compare(found.records)
    figures = report_figures(found.records)
    page = comparison_page(comparison, figures, output / "report.html", AxisBoxes.of(found))
    written = {"table.txt": f"{text}\n", "table.tex": f"{sweep.latex(found)}\n", "report.html": page}
    written["results.csv"] = f"{sweep.to_csv(found)}\n"
    try:
        output.mkdir(parents=True, exist_ok=True)
        for old in output.glob("*.svg"):  # of a call with other runs
            old.unlink()
        for name, content in written.items():
            (output / name).write_text(content, encoding="utf-8")
        write_json(output / "results.json", sweep.to_json(found))
        for figure in figures:
            if figure.panels:
                printed.print_figure(figure, output / f"{figure.kind}.svg")
    except OSError as error:
        raise InputError(f"{error.filename}: cannot be written: {error.strerror}") from error
    return text
