"""`report.html`: one run on one page that needs nothing else."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from testbed.analysis.figures import printed
from testbed.analysis.figures.run_figures import TITLES, run_figures
from testbed.analysis.figures.table import Figure
from testbed.analysis.record.identity import UNKNOWN, kind_of
from testbed.analysis.record.record import Record
from testbed.analysis.report import changes, link_tables, note_tables, provenance_tables
from testbed.analysis.report.measured_table import Column, measured_table
from testbed.analysis.style import html_page
from testbed.core.device.profile import SCALED
from testbed.core.errors import BROKEN
from testbed.core.record.summary import compressor_label, left_out_line
from testbed.core.units import format_size, format_time

NOTHING = "The record holds nothing to draw here."


def run_report(record: Record) -> tuple[str, list[str]]:
    """The page as HTML, and a line for each part that could not be made. The same record gives the same bytes."""
    summary = record.summary or {}
    reasons = summary.get("reasons") or ([] if summary else ["the run wrote no summary"])
    faults: list[str] = []
    figures, undrawn = run_figures(record)
    drawn = [html_page.section(figure.title, *_figure(figure, undrawn)) for figure in figures]
    html = html_page.document(
        record.run_id,
        html_page.verdict(summary.get("verdict"), summary.get("status"), reasons, _notes(summary)),
        html_page.note(_of_kind(kind_of(record))),
        _raw_data(record),
        html_page.section("Summary", html_page.table(("", "value"), _summary_rows(summary, record.provenance))),
        *drawn,
        *(part for maker in _PARTS for part in _readable(maker, record, faults)),
    )
    return html, [*(f"{TITLES[kind]}: {fault}" for kind, fault in undrawn.items()), *faults]


def _readable(maker: Callable[[Record], Iterable[str]], record: Record, faults: list[str]) -> Iterable[str]:
    """Return the sections of one kind; where the record's values are none of a run's, a note in their place."""
    try:
        return list(maker(record))
    except BROKEN as error:
        fault = f"A part of the page ({maker.__name__.strip('_')}) could not be made: {type(error).__name__}: {error}"
        faults.append(fault)
        return [html_page.note(fault)]


def _figure(figure: Figure, undrawn: dict[str, str]) -> Iterator[str]:
    if figure.panels:
        try:
            yield html_page.wide_figure(printed.svg_element(figure))
        except BROKEN as error:  # of values that no axis has
            undrawn[figure.kind] = f"Could not be drawn: {type(error).__name__}: {error}"
            yield html_page.note(undrawn[figure.kind])
        yield from map(html_page.note, figure.notes)
    else:
        yield html_page.note(undrawn.get(figure.kind, NOTHING))


def _of_kind(kind: str) -> str:
    if kind == UNKNOWN:
        return "Of which kind the figures and tables are, the record does not say. Times are seconds since step 1."
    return f"All figures and tables: {kind}. Times are {kind} seconds since step 1 unless they say wall."


def _raw_data(record: Record) -> str:
    """Beside this page, also of what is written after it."""
    run = record.run
    files = (run.spec, run.provenance, run.network, run.events, run.samples, run.openmetrics, run.summary)
    links = ", ".join(html_page.link(file.name, run.path, run.report, file.name) for file in files)
    return f'<p class="note">Raw data: {links}</p>' + "".join(html_page.note(fault) for fault in record.faults)


def _used_files(record: Record) -> Iterator[str]:
    """Yield nothing for a run of Longhaul's code alone."""
    if used := (record.summary or {}).get("used_files"):
        rows = ((one.get("path"), one.get("size_bytes"), one.get("sha256")) for one in used)
        remark = (
            "Files outside of Longhaul's code and of installed packages that ran or were named. Without a size: it"
            " changed while the run went on."
        )
        table = measured_table(("file", ("size", "size"), "SHA-256"), rows)
        yield html_page.section("User's files", html_page.note(remark), table)


def _changes(record: Record) -> Iterator[str]:
    """Nothing for a run in which nothing was to change."""
    if record.of_kind("change") or (record.spec and record.spec.events):
        table = html_page.table(changes.HEADINGS, changes.rows(record))
        yield html_page.section("Network events", html_page.note(changes.remark(record)), table)


def _shown(form: str, value: Any) -> str | None:
    return None if value is None else format(value, form)


def _departures(record: Record) -> Iterator[str]:
    """Nothing where all workers stayed."""
    if left := record.of_kind("left"):
        remark = "Workers that were killed, failed, or were excluded by the others, which continued without them."
        rows = ((f"{one['t_s']:.3f} s", one.get("rank"), one.get("node"), one.get("message")) for one in left)
        table = html_page.table(("time", "rank", "node", "why"), rows)
        yield html_page.section("Lost workers", html_page.note(remark), table)


def _tuning(record: Record) -> Iterator[str]:
    """Nothing where the strategy searched nothing."""
    if notes := record.of_kind("tuning"):
        remark = "Trials of strategy.fusion=tuned, the choice, and when the duration of steps changed."
        rows = (
            (
                f"{note['t_s']:.3f} s",
                note.get("step"),
                note.get("what"),
                note.get("trial"),
                note.get("size_bytes"),
                note.get("buckets"),
                note.get("step_s"),
            )
            for note in notes
        )
        columns = ("time", "after step", "what", "trial", ("size", "size"), "buckets", ("a step takes", "time"))
        table = measured_table(columns, rows)
        yield html_page.section("Bucket size search", html_page.note(remark), table)


def _plan(record: Record) -> Iterator[str]:
    """Nothing where the strategy made none."""
    for note in record.of_kind("plan"):
        dimensions: dict[int | None, list[int]] = {}
        for factor in note.get("factors", ()):
            dimensions.setdefault(factor.get("owner"), []).append(factor.get("dimension", 0))
        rows = (
            ("every worker" if owner is None else f"rank {owner}", len(found), max(found), sum(found))
            for owner, found in sorted(dimensions.items(), key=lambda pair: (pair[0] is not None, pair[0] or 0))
        )
        groups = note.get("groups", ())
        remark = f"{sum(map(len, dimensions.values()))} factors, sent in {len(groups)} groups."
        table = html_page.table(("inverted by", "factors", "largest dimension", "total dimension"), rows)
        yield html_page.section("K-FAC factor assignment", html_page.note(remark), table)


def _mixing(record: Record) -> Iterator[str]:
    """Nothing where no replicas were mixed."""
    for note in record.of_kind("mixing"):
        gap = note.get("spectral_gap")
        remark = (
            f"Graph {note.get('graph')}: {note.get('edges')} edges, {note.get('wan_edges')} of them between regions;"
            f" at most {note.get('most_neighbours')} neighbours; spectral gap {_shown('.4f', gap)};"
            f" consensus step size {note.get('consensus_step_size')}."
        )
        last = record.of_kind("consensus")
        rows = [(one.get("rank"), _shown(".2e", one.get("distance"))) for one in last]
        table = html_page.table(("rank", "distance from the mean, over its norm"), rows)
        yield html_page.section("Gossip replicas", html_page.note(remark), table)


def _far_keys(record: Record) -> Iterator[str]:
    """Nothing where no keys and values were far."""
    if not (texts := record.of_kind("kv_text")):
        return
    compared = {note.get("text"): note for note in record.of_kind("kv_quality")}
    remark = (
        "Bytes of each text to and from the side that keeps keys and values, frames included; for compared texts, the"
        " difference from exact attention."
    )
    rows = []
    for note in texts:
        beside = compared.get(note.get("text"), {})
        trips = f"{note.get('round_trips')} + {note.get('round_trips_ahead')} ahead"
        shares = [_shown(".3f", beside.get(name)) for name in ("token_match", "mass_recall", "relative_error")]
        answers = f"{note.get('right')} of {note.get('questions')}"
        sizes = [note.get(name) for name in ("set_up_bytes", "up_bytes", "down_bytes", "near_bytes")]
        times = [note.get(name) for name in ("first_token_s", "token_s")]
        rows.append((note.get("text"), note.get("tokens"), *sizes, trips, *times, answers, *shares))
    sent = tuple((name, "size") for name in ("set up", "up", "down", "near"))
    times_to = (("to the first", "time"), ("to each other", "time"))
    columns: tuple[Column, ...] = ("text", "bytes decoded", *sent, "round trips", *times_to)
    judged = ("answers right", "same byte found", "attention on fetched", "error of attention")
    yield html_page.section("KV transfer", html_page.note(remark), measured_table((*columns, *judged), rows))


def _transforms(record: Record) -> Iterator[str]:
    """Nothing where the model kept its layers."""
    for note in record.of_kind("transform"):
        found = note.get("factorised", ())
        rows = [
            (
                layer.get("layer"),
                f"{layer.get('rank')} of {layer.get('full_rank')}",
                layer.get("elements"),
                layer.get("factor_elements"),
                f"{layer.get('lost_share', 0.0):.1%}",
            )
            for layer in found
        ]
        rows += [(name, "full", None, None, reason) for name, reason in (note.get("kept") or {}).items()]
        before, after = note.get("parameters_before", 0), note.get("parameters", 0)
        step = note.get("step")
        when = f"After step {step}, at {note['t_s']:.3f} s" if step else "Before the first step"
        fewer = f"{before / after if after else 0:.2f}x fewer"
        remark = f"{when}: {after:,} trained parameters instead of {before:,} ({fewer})."
        table = html_page.table(("layer", "rank", "elements", "of its factors", "weight lost, or reason"), rows)
        yield html_page.section("Model transforms", html_page.note(remark), table)


def _frozen(record: Record) -> Iterator[str]:
    """Nothing where all layers learn to the end."""
    if notes := record.of_kind("freeze"):
        rows = (
            (
                f"{note['t_s']:.3f} s",
                note.get("step"),
                note.get("epoch"),
                f"{note.get('frozen')} of {note.get('layers')}",
                f"{note.get('parameters', 0):,}",
                _hit_ratio(record, note.get("epoch", 0) + 1),
            )
            for note in notes
        )
        columns = ("time", "after step", "epoch", "frozen layers", "trained parameters", "cache hits")
        remark = "Frozen layers, and the share of samples that ranks found in their caches in the next epoch."
        yield html_page.section("Frozen layers", html_page.note(remark), html_page.table(columns, rows))


def _hit_ratio(record: Record, epoch: int) -> str | None:
    """Of all ranks' samples in this epoch; None: there was no cache."""
    notes = [note for note in record.of_kind("cache") if note.get("epoch") == epoch]
    found, total = (sum(note.get(key, 0) for note in notes for key in keys) for keys in (_FOUND, (*_FOUND, "none")))
    return f"{found / total:.1%}" if total else None


def _notes(summary: dict[str, Any]) -> Iterator[str]:
    if (line := left_out_line(summary)) is not None:
        yield line
    yield from (f"not checked: {unknown}" for unknown in summary.get("unknowns") or ())


def _summary_rows(summary: dict[str, Any], provenance: dict[str, Any] | None) -> Iterator[tuple[str, object]]:
    for key, value in summary.items():
        if key in ("links", "reasons", "unknowns", "hooks", "used_files", "left_out"):
            continue
        value = compressor_label(summary) if key == "compressor" else value
        value = f"{value}{_basis(provenance)}" if key == "device" and value else value
        if isinstance(value, dict):
            yield from ((f"{key} {name}", _in_unit(key, item)) for name, item in value.items())
        else:
            yield key, _in_unit(key, value)


def _basis(provenance: dict[str, Any] | None) -> str:
    """Return a mark of a device whose times have the length of another one than their shape."""
    profile = (provenance or {}).get("device_profile")
    return f" ({SCALED})" if isinstance(profile, dict) and profile.get("basis") == SCALED else ""


def _in_unit(key: str, value: Any) -> object:
    if isinstance(value, int | float) and not isinstance(value, bool):
        if key.endswith("_s"):
            return format_time(value)
        if key == "bytes":
            return f"{format_size(value)} ({value:.0f} B)"
        if isinstance(value, float):
            return f"{value:.6g}"
    return value


_FOUND = ("whole", "part")
"""What a rank found of a sample."""


def _links(record: Record) -> Iterator[str]:
    yield html_page.section("Links", *link_tables.links(record))
    yield html_page.section("Link measurements", link_tables.measurements(record))


_PARTS: tuple[Callable[[Record], Iterable[str]], ...] = (
    _changes,
    _departures,
    _tuning,
    _plan,
    _mixing,
    _far_keys,
    _transforms,
    _frozen,
    note_tables.sections,
    _used_files,
    _links,
    provenance_tables.sections,
)
