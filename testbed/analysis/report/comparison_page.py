"""`longhaul report`: several runs on one page that needs nothing else."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from testbed.analysis.comparison.cells import Shown
from testbed.analysis.comparison.comparison import Comparison, remarks, table
from testbed.analysis.figures import page
from testbed.analysis.figures.build import build
from testbed.analysis.figures.methods import styles_of
from testbed.analysis.figures.table import Figure
from testbed.analysis.record.identity import kind_of, seed_of, verdict_of
from testbed.analysis.record.record import Record
from testbed.analysis.style import html_page
from testbed.analysis.style.series_style import SeriesStyle
from testbed.analysis.style.swatch import swatch

_RAW = ("report.html", "summary.json", "samples.parquet", "events.jsonl")
_RUN_HEADINGS = ("run", "raw data", "verdict", "status", "kind", "seed", "started", "commit", "code")
_KINDS = ("accuracy_over_time", "accuracy_over_bytes", "pareto", "time_to_target", "step_split")
_NOTHING = "These runs hold nothing to draw here."
_PROVENANCE = (
    *("kernel", "system", "cpu", "cores", "memory_bytes", "clock_source", "python", "iproute2", "runc"),
    "machine_shared",
)


class Boxes(Protocol):
    """Check boxes that show and hide parts of the page."""

    def markup(self) -> str: ...

    def style(self, shown: Mapping[str, Iterable[str]]) -> str:
        """Return the rules that hide classes.

        Args:
            shown: Run ids by the class of what is shown of them.
        """

    def ids(self) -> dict[str, list[list[str]]]:
        """Return ids of boxes by run id: the run is shown while one of each list is checked."""


def report_figures(records: Sequence[Record], *, take_all: bool = False) -> list[Figure]:
    """Return the figures of a comparison; one without panels says in its notes why it has none."""
    return [build(records, kind, allow_invalid=take_all) for kind in _KINDS]


def comparison_page(comparison: Comparison, figures: Sequence[Figure], where: Path, boxes: Boxes | None = None) -> str:
    """Return the page as HTML, to lie at `where`. The same records give the same bytes."""
    found = table(comparison)
    styles = styles_of(comparison.groups)
    rows = [_row(styles[id(group)], cells) for group, cells in zip(comparison.groups, found.rows, strict=True)]
    nothing = html_page.note("No run of these can be compared.")
    classes = [group.css_class for group in comparison.groups]
    sections = [
        boxes.markup() if boxes else "",
        _table(found, rows, classes) if rows else nothing,
        *(html_page.note(remark) for remark in remarks(comparison)),
    ]
    count = len(comparison.records)
    drawing = page.Drawing(boxes.ids() if boxes else {})
    return html_page.document(
        f"Comparison of {count} run{'' if count == 1 else 's'}",
        *sections,
        *_drawn(drawing, figures),
        html_page.section("Runs", _runs(comparison, where)),
        *_reasons(comparison),
        html_page.section("Provenance", *_provenance(comparison)),
        style=page.STYLE + (boxes.style(_shown(comparison)) if boxes else ""),
        scripts=drawing.scripts(),
    )


def _shown(comparison: Comparison) -> dict[str, list[str]]:
    """Return run ids by class, for rows and lines of the table of runs."""
    rows = {group.css_class: [record.run_id for record in group.records] for group in comparison.groups}
    runs = {_run_class(number): [record.run_id] for number, record in enumerate(_in_order(comparison))}
    return rows | runs


def _run_class(number: int) -> str:
    return f"run-{number}"


def _in_order(comparison: Comparison) -> list[Record]:
    return sorted(comparison.records, key=lambda record: record.run_id)


def _table(found: Shown, rows: list[list[object]], classes: list[str]) -> str:
    numbers = found.headings[found.words :]
    return html_page.table(found.headings, rows, numbers=numbers, kind="lines", css_classes=classes)


def _row(style: SeriesStyle, cells: Sequence[str]) -> list[object]:
    strategy, *others = cells
    return [html_page.named(swatch(style), strategy, ""), *others]


def _drawn(drawing: page.Drawing, figures: Sequence[Figure]) -> Iterator[str]:
    for figure in figures:
        notes = [note for note in figure.notes if note not in figure.left_out]  # the table's remarks say it
        if figure.panels:
            yield html_page.section(figure.title, drawing.place(figure), *map(html_page.note, notes))
        else:
            yield html_page.section(figure.title, html_page.note(" ".join([_NOTHING, *notes])))


def _runs(comparison: Comparison, where: Path) -> str:
    classes = [_run_class(number) for number in range(len(comparison.records))]
    return html_page.table(_RUN_HEADINGS, _run_rows(comparison, where), kind="lines", css_classes=classes)


def _run_rows(comparison: Comparison, where: Path) -> Iterator[list[object]]:
    taken = {record.run.path for group in comparison.groups for record in group.taken}
    for record in _in_order(comparison):
        directory, provenance = record.run.path, record.provenance
        there = [name for name in _RAW if (directory / name).exists()]
        raw = " ".join(html_page.link(name.partition(".")[0], directory, where, name) for name in there)
        left = "" if record.run.path in taken else " (left out)"
        commit = str(provenance.get("commit") or "unknown")[:10]
        yield [
            html_page.link(record.run_id, directory, where),
            html_page.Html(raw or "-"),
            verdict_of(record) + left,
            (record.summary or {}).get("status"),
            kind_of(record),
            seed_of(record),
            _started(record),
            commit + (" + changes" if provenance.get("dirty") else ""),
            str(provenance.get("code_hash") or "-")[:8],
        ]


def _started(record: Record) -> str | None:
    start_unix_s = record.start_unix_s
    return None if start_unix_s is None else time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(start_unix_s))


def _reasons(comparison: Comparison) -> Iterator[str]:
    rows = [
        (record.run_id, verdict_of(record), reason)
        for record in comparison.records
        for reason in (record.summary or {}).get("reasons") or ()
    ]
    if rows:
        yield html_page.section("Reasons for the verdicts", html_page.table(("run", "verdict", "reason"), rows))


def _provenance(comparison: Comparison) -> Iterator[str]:
    """What all runs share, once; then what is told apart by it. Each run's own page has all of it."""
    found = [_facts(record) for record in comparison.records]
    shared = {key: found[0].get(key) for key in dict.fromkeys(key for facts in found for key in facts)} if found else {}
    shared = {key: value for key, value in shared.items() if all(facts.get(key) == value for facts in found)}
    yield html_page.table(("of all runs", "value"), shared.items())
    rows = Counter((key, value) for facts in found for key, value in facts.items() if key not in shared)
    if rows:
        ordered = sorted((key, str(value), count) for (key, value), count in rows.items())
        yield html_page.table(("of some", "value", "runs"), ordered, numbers=("runs",))


def _facts(record: Record) -> dict[str, str]:
    provenance, network = record.provenance, record.network
    packages = provenance.get("packages")
    facts: dict[str, Any] = {key: provenance.get(key) for key in _PROVENANCE}
    facts |= {key: network.get(key) for key in ("shaper", "tcp", "congestion_control")}
    facts |= {f"package {name}": version for name, version in packages.items()} if isinstance(packages, dict) else {}
    return {str(key): str(value)[:200] for key, value in facts.items() if isinstance(value, str | int | float)}
