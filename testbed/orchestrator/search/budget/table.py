"""What `longhaul budget` prints."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from testbed.core.units import column_unit, format_time, significant
from testbed.orchestrator.terminal.spoken import MISSING

_LEFT = ("strategy", "compressor", "verdict", "run")


def budget_table(content: Mapping[str, Any]) -> RenderableType:
    rows = [row for row in content["pairs"] if not row["refused"]]
    parts: list[RenderableType] = [Text(_heading(content), style="bold")]
    if rows:
        parts += [_rates(rows), _sent(content, rows)]
    parts += [Text(line) for line in (*_remarks(content, rows), *_refusals(content["pairs"]))]
    return Group(*parts)


def _heading(content: Mapping[str, Any]) -> str:
    target = format_time(content["target_step_s"])
    return (
        f"{content['workload']}, {content['workers']} workers on {content['topology']}: the least links for steps of"
        f" {target}  ({content['kind']})"
    )


def _rates(rows: Sequence[Mapping[str, Any]]) -> Table:
    """Return a column for each round trip; all rates have one unit, and so have the steps where no rate does."""
    parameters = _parameters(rows)
    points = [point for row in rows for point in row["points"]]
    unit, name = _unit((point["rate_bit_s"] for point in points), "rate")
    lacking = [point["step_s"] for point in points if point["rate_bit_s"]["estimate"] is None]
    step_unit, step_name = _unit(lacking, "time")
    table = _empty(["strategy", "compressor", *parameters, *(format_time(one["rtt_s"]) for one in rows[0]["points"])])
    table.title = f"lowest rate of the WAN links that does ({name}), by their round trip" + (
        f"; in brackets behind none: step at any rate ({step_name})" if lacking else ""
    )
    for row in rows:
        table.add_row(*_named(row, parameters), *(_rate(point, unit, step_unit) for point in row["points"]))
    return table


def _sent(content: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]) -> Table:
    parameters, has_price = _parameters(rows), content["price_per_gb"] is not None
    unit, name = _unit((row["longest_rtt_s"] for row in rows), "time")
    heads = [f"longest round trip ({name})", "GB over the WAN", *(["cost"] if has_price else []), "per"]
    table = _empty(["strategy", "compressor", *parameters, *heads])
    table.title = "longest round trip at any rate, and what is sent, by what is sent"
    for row in rows:
        rtt = row["longest_rtt_s"]
        longest = "none" if rtt["estimate"] is None else _spoken(rtt, unit)
        cells = [longest, _spoken(row["gb"]), *([_spoken(row["cost"])] if has_price else [])]
        per = row["per"] if row["per"].endswith("steps") else f"{row['per']} of {row['steps']} steps"
        table.add_row(*_named(row, parameters), *cells, per)
    return table


def _named(row: Mapping[str, Any], parameters: Sequence[str]) -> list[str]:
    return [row["values"].get(key, "") for key in ("strategy", "compressor", *parameters)]


def _parameters(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Of strategies and compressors, those in which rows differ."""
    keys = dict.fromkeys(key for row in rows for key in row["values"] if key.startswith(("strategy.", "compressor.")))
    return [key for key in keys if len({row["values"].get(key) for row in rows}) > 1]


def _unit(intervals: Iterable[Mapping[str, Any]], kind: str) -> tuple[float, str]:
    """Return the one unit of a column of intervals."""
    return column_unit((one["estimate"] for one in intervals if one["estimate"] is not None), kind)


def _rate(point: Mapping[str, Any], unit: float, step_unit: float) -> str:
    rate = point["rate_bit_s"]
    if rate["estimate"] is None:
        return f"none ({significant(point['step_s']['estimate'] / step_unit)})"
    return _spoken(rate, unit)


def _spoken(interval: Mapping[str, float | None], unit: float = 1.0) -> str:
    """Return as "25 (20 to 31)", in the column's unit."""
    estimate, low, high = (
        "none" if (value := interval[end]) is None else significant(value / unit, 3)
        for end in ("estimate", "low", "high")
    )
    return f"{estimate} ({low})" if low == high else f"{estimate} ({low} to {high})"


def _remarks(content: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    known = content["validation"]
    if not rows:
        yield "No pair could be looked at."
        return
    yield (
        "GB are those that leave WAN links, each way, headers counted, at the round trip at which most is sent. Longest"
        " round trip: at any rate; none: the step is too long however near."
    )
    low, high = known["step_errors"]["low"], known["step_errors"]["high"]
    yield (
        f"Ranges: {content['measurements']} measurements of computing, and the errors on {known['configurations']}"
        f" emulated configurations, {low:+.1%} to {high:+.1%}, between which one more lies by a chance of"
        f" {known['covered']:.0%}."
        if known["configurations"]
        else f"Ranges: {content['measurements']} measurements of computing; the simulator was validated on nothing."
    )
    outside = {why.split()[0]: why for row in rows for point in row["points"] for why in point["outside_by"]}
    if outside:
        yield f"Unlike what was validated, in part of the table, such as: {'; '.join(outside.values())}."


def _refusals(rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """By reason, with all who have it."""
    by_reason: dict[str, list[str]] = {}
    for row in rows:
        for reason in row["refused"]:
            by_reason.setdefault(reason, []).append(f"{row['strategy']}+{row['compressor']}")
    for reason, names in by_reason.items():
        yield f"refused: {', '.join(dict.fromkeys(names))}: {reason}"


_CHECKED = (("round trip", "rtt_s", "time"), ("rate", "rate_bit_s", "rate"))
"""Heading, key and kind of where a point lies."""


def check_table(found: Sequence[Mapping[str, Any]]) -> RenderableType:
    """Return what was predicted next to what was measured."""
    units = [column_unit((one[key] for one in found), kind) for _, key, kind in _CHECKED]
    step, step_name = _unit((one["step_s"] for one in found), "time")
    sent, sent_name = _unit((one["wan_bytes_step"] for one in found), "size")
    where = [f"{head} ({name})" for (head, _, _), (_, name) in zip(_CHECKED, units, strict=True)]
    heads = [*where, f"predicted ({step_name})", f"measured ({step_name})", "error", "target"]
    sent_heads = [f"WAN bytes predicted ({sent_name})", f"measured ({sent_name})"]
    table = _empty(["strategy", "compressor", *heads, *sent_heads, "verdict", "run"])
    for one in found:
        places = [significant(one[key] / unit) for (_, key, _), (unit, _) in zip(_CHECKED, units, strict=True)]
        first = [one["strategy"], one["compressor"], *places, _spoken(one["step_s"], step)]
        measured_bytes = [one["wan_bytes_step"]["estimate"], one["measured_wan_bytes_step"]]
        bytes_ = [MISSING if value is None else significant(value / sent) for value in measured_bytes]
        if one["verdict"] is None:
            table.add_row(*first, MISSING, MISSING, MISSING, *bytes_, MISSING, one["why_not"])
            continue
        error = f"{one['error']:+.1%}{'' if one['is_within'] else ', outside'}"
        target = "met" if one["meets_target"] else "missed"
        measured = significant(one["measured_step_s"] / step)
        table.add_row(*first, measured, error, target, *bytes_, one["verdict"], one["run_id"])
    return Group(Text("checked by emulation (emulated against simulated)", style="bold"), table)


def _empty(heads: Sequence[str]) -> Table:
    table = Table(box=box.SIMPLE, title_justify="left")
    for head in heads:
        table.add_column(head, justify="left" if head in _LEFT else "right")
    return table
