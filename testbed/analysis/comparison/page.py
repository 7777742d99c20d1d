"""`longhaul report`: several runs on one page that needs nothing else."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol

from testbed.analysis.comparison.comparison import Comparison, cells, headings, remarks
from testbed.analysis.comparison.figures import Figure
from testbed.analysis.comparison.groups import Group
from testbed.analysis.record.identity import kind_of, seed_of, verdict_of
from testbed.analysis.record.record import Record
from testbed.analysis.style import html_page
from testbed.analysis.style.swatch import swatch

_RAW = ("report.html", "summary.json", "samples.parquet", "events.jsonl")
_RUN_HEADINGS = ("run", "raw data", "verdict", "status", "kind", "seed", "started", "commit", "code")
_PROVENANCE = (
    *("kernel", "system", "cpu", "cores", "memory_bytes", "clock_source", "python", "iproute2", "runc"),
    "machine_shared",
)


class Boxes(Protocol):
    """What shows and hides parts of the page."""

    def markup(self) -> str: ...

    def style(self, shown: Mapping[str, Iterable[str]]) -> str:
        """
        Args:
            shown: run ids by the class of what is shown of them.
        """


def comparison_page(
    comparison: Comparison, figures: list[Figure], faults: list[str], where: Path, boxes: Boxes | None = None
) -> str:
    """The page as HTML, to lie at `where`. The same records give the same bytes."""
    names = headings(comparison)
    rows = [_row(comparison, group) for group in comparison.groups]
    numbers = names[names.index("verdicts") + 1 :]
    nothing = html_page.note("No run of these can be compared.")
    classes = [group.css_class for group in comparison.groups]
    sections = [
        boxes.markup() if boxes else "",
        html_page.table(names, rows, numbers=numbers, kind="lines", css_classes=classes) if rows else nothing,
        *(html_page.note(remark) for remark in remarks(comparison)),
        *(html_page.note(fault) for fault in faults),
    ]
    count = len(comparison.records)
    return html_page.document(
        f"Comparison of {count} run{'' if count == 1 else 's'}",
        *sections,
        *_drawn(figures),
        html_page.section("Runs", _runs(comparison, where)),
        *_reasons(comparison),
        html_page.section("Provenance", *_provenance(comparison)),
        style=boxes.style(_shown(comparison, figures)) if boxes else "",
    )


def _shown(comparison: Comparison, figures: list[Figure]) -> dict[str, list[str]]:
    """Run ids by class, of rows, figures and lines of the table of runs."""
    rows = {group.css_class: [record.run_id for record in group.records] for group in comparison.groups}
    drawn = {
        _figure_class(number): [run_id for group in figure.groups for run_id in rows[group.css_class]]
        for number, figure in enumerate(figures)
    }
    runs = {_run_class(number): [record.run_id] for number, record in enumerate(_in_order(comparison))}
    return rows | drawn | runs


def _figure_class(number: int) -> str:
    return f"figure-{number}"


def _run_class(number: int) -> str:
    return f"run-{number}"


def _in_order(comparison: Comparison) -> list[Record]:
    return sorted(comparison.records, key=lambda record: record.run_id)


def _row(comparison: Comparison, group: Group) -> list[object]:
    _, *others = cells(comparison, group)
    return [html_page.named(swatch(group.plot_style), group.method, group.differs), *others]


def _drawn(figures: list[Figure]) -> Iterator[str]:
    if not figures:
        yield html_page.note("None of these runs has a metric over time to draw.")
    else:
        drawn = "\n".join(
            html_page.figure(figure.title, figure.svg, _figure_class(number)) for number, figure in enumerate(figures)
        )
        yield html_page.section("Curves", f'<div class="figures">\n{drawn}\n</div>')
        yield html_page.note(
            "With markers: a row of the table, where it has several runs the mean over them, as far as all of them have"
            " values; thin: each of these runs. Times are seconds since the first step, of the kind the title says."
            " A method has one colour and one marker on every page."
        )


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
