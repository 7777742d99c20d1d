"""Several runs side by side: one page, or one table of text."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from testbed.analysis import page
from testbed.analysis.load import Point, Record
from testbed.core.units import format_size, format_time

Column = tuple[str, Callable[[dict[str, Any]], object]]


def _nested(
    outer: str, inner: str, convert: Callable[[float], str] | None = None
) -> Callable[[dict[str, Any]], object]:
    def value(summary: dict[str, Any]) -> object:
        found = (summary.get(outer) or {}).get(inner)
        return convert(found) if convert and found is not None else found

    return value


def _plain(key: str, convert: Callable[[float], str] | None = None) -> Callable[[dict[str, Any]], object]:
    def value(summary: dict[str, Any]) -> object:
        found = summary.get(key)
        return convert(found) if convert and found is not None else found

    return value


def _number(value: float) -> str:
    return f"{value:.4g}"


COLUMNS: tuple[Column, ...] = (
    ("run", _plain("run_id")),
    ("verdict", _plain("verdict")),
    ("status", _plain("status")),
    ("kind", _plain("kind")),
    ("topo", _plain("topo")),
    ("strategy", _plain("strategy")),
    ("compressor", _plain("compressor")),
    ("workers", _plain("workers")),
    ("steps", _plain("steps")),
    ("time", _plain("time_s", format_time)),
    ("step p50", _nested("step_time_s", "p50", format_time)),
    ("payload", _nested("bytes", "payload", format_size)),
    ("WAN bytes", _nested("bytes", "wire_wan", format_size)),
    ("ratio", _plain("compression_ratio", _number)),
    ("metric", _nested("metric", "name")),
    ("best", _nested("metric", "best", _number)),
    ("to target", _nested("metric", "time_to_target_s", format_time)),
)


def summaries(records: Iterable[Record]) -> list[dict[str, Any]]:
    """The runs' summaries; of a run without one its id alone, with a null status."""
    return [record.summary or {"run_id": record.run_id, "status": None, "verdict": None} for record in records]


def text_table(records: Iterable[Record]) -> str:
    """Columns aligned by spaces; missing is a dash."""
    rows = [[heading for heading, _ in COLUMNS]]
    for summary in summaries(records):
        rows.append(["-" if (cell := value(summary)) is None else _printable(cell) for _, value in COLUMNS])
    widths = [max(len(row[index]) for row in rows) for index in range(len(COLUMNS))]
    lines = ("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in rows)
    return "\n".join(line.rstrip() for line in lines)


def _printable(cell: object) -> str:
    """A record's text must not steer the terminal."""
    return "".join(character if character.isprintable() else "?" for character in str(cell))


def drawn_records(records: Sequence[Record], *, include_invalid: bool) -> list[Record]:
    """Those that may be believed; with `include_invalid` all, also those without a verdict."""
    return [record for record in records if include_invalid or _verdict(record) in ("valid", "suspect")]


def comparison_page(records: Sequence[Record], *, include_invalid: bool = False) -> str:
    """Figures over the drawn runs, and a table of all."""
    drawn = drawn_records(records, include_invalid=include_invalid)
    left_out = len(records) - len(drawn)
    remark = f"Left out of the figures: {left_out} of {len(records)} runs, which are invalid or unfinished."
    rows = ([value(summary) for _, value in COLUMNS] for summary in summaries(records))
    reasons = [(record.run_id, _verdict(record), reason) for record in records for reason in _reasons(record)]
    return page.document(
        f"Comparison of {len(records)} runs",
        page.section("Runs", page.table([heading for heading, _ in COLUMNS], rows)),
        page.note(remark if left_out else "All runs are drawn."),
        *(page.section(title, svg) for title, svg in figures(drawn)),
        *(
            [page.section("Reasons for the verdicts", page.table(("run", "verdict", "reason"), reasons))]
            if reasons
            else []
        ),
    )


def _verdict(record: Record) -> str | None:
    return (record.summary or {}).get("verdict")


def _reasons(record: Record) -> list[Any]:
    return (record.summary or {}).get("reasons") or []


def figures(records: Sequence[Record]) -> Iterator[tuple[str, str]]:
    """(title, <svg> element) of each figure over several runs."""
    # matplotlib takes most of a second to load, and tables do not need it.
    from testbed.analysis.chart import LEGEND_ENTRIES, draw, legend, new_figure, style, to_svg

    looks = _looks(records)
    metric = " / ".join(sorted({name for record in records if (name := record.metric_name())}))
    for title, xlabel, scale, kind, curve in (
        ("Metric over time", "time (s)", 1.0, "linear", Record.metric_points),
        # methods differ by factors of ten and more
        ("Metric over bytes that left the WAN links", "WAN bytes (MB)", 1e-6, "log", metric_over_wan_bytes),
    ):
        with style():
            figure, (axes,) = new_figure(legend_rows=min(len(records), LEGEND_ENTRIES))
            for record, (label, color, dashes) in zip(records, looks, strict=True):
                draw(axes, [(x * scale, y) for x, y in curve(record)], label, color, dashes=dashes)
            axes.set(xlabel=xlabel, ylabel=metric or "metric", xscale=kind)
            legend(axes)
            yield title, to_svg(figure)


def _looks(records: Sequence[Record]) -> list[tuple[str, str, str]]:
    """(label, colour, dashes) of each run: one colour a compressor; where all have the same one, one colour a run."""
    from testbed.analysis.chart import OKABE_ITO

    dashes = ("-", "--", ":", "-.")
    names = [record.spec.compressor.name if record.spec else "unknown" for record in records]
    distinct = sorted(set(names))
    labels = _labels(records)
    seen: dict[str, int] = {}
    looks = []
    for index, (record, name) in enumerate(zip(records, names, strict=True)):
        kind = (record.summary or {}).get("kind") or "emulated"
        number = seen[name] = seen.get(name, -1) + 1
        color, turn = (distinct.index(name), number) if len(distinct) > 1 else (index, index // len(OKABE_ITO))
        looks.append((f"{labels[index]} ({kind})", OKABE_ITO[color % len(OKABE_ITO)], dashes[turn % len(dashes)]))
    return looks


def _labels(records: Sequence[Record]) -> list[str]:
    """What was asked, in few words; the run's id beside it where two were asked the same."""
    words = [
        f"{record.spec.topo} {record.spec.strategy.name} {record.spec.compressor.name} seed {record.spec.seed}"
        if record.spec
        else record.run_id
        for record in records
    ]
    return [
        word if words.count(word) == 1 else f"{word} {record.run_id}"
        for word, record in zip(words, records, strict=True)
    ]


def metric_over_wan_bytes(record: Record) -> list[Point]:
    """The metric against bytes that had left all WAN links when it was taken, linear between two samples."""
    import numpy as np

    directions = record.wan_bytes()
    metric = record.metric_points()
    if not directions or not metric:
        return []
    times_s = np.array([t_s for t_s, _ in metric])
    total = np.zeros(len(metric))
    for points in directions.values():
        # Counting starts at 0 with the first step.
        t_s, sent = zip((0.0, 0.0), *points, strict=True)
        total += np.interp(times_s, t_s, sent)
    return [(float(x), y) for x, (_, y) in zip(total, metric, strict=True)]
