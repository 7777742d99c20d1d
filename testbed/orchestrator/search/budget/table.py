"""What `longhaul budget` prints."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from testbed.core.units import format_rate, format_time
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
    """A column for each round trip."""
    parameters = _parameters(rows)
    table = _empty(["strategy", "compressor", *parameters, *(format_time(one["rtt_s"]) for one in rows[0]["points"])])
    table.title = "lowest rate of the WAN links that does, by their round trip (step at any rate, where none does)"
    for row in rows:
        table.add_row(*_named(row, parameters), *(_rate(point) for point in row["points"]))
    return table


def _sent(content: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]) -> Table:
    parameters, has_price = _parameters(rows), content["price_per_gb"] is not None
    heads = ["longest round trip", "GB over the WAN", *(["cost"] if has_price else []), "per"]
    table = _empty(["strategy", "compressor", *parameters, *heads])
    table.title = "longest round trip at any rate, and what is sent, by what is sent"
    for row in rows:
        rtt = row["longest_rtt_s"]
        longest = "none" if rtt["estimate"] is None else f"{format_time(rtt['estimate'])} ({_range(rtt, format_time)})"
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


def _rate(point: Mapping[str, Any]) -> str:
    rate = point["rate_bit_s"]
    if rate["estimate"] is None:
        return f"none ({format_time(point['step_s']['estimate'])})"
    return f"{format_rate(rate['estimate'])} ({_range(rate, format_rate)})"


def _spoken(interval: Mapping[str, float]) -> str:
    return f"{interval['estimate']:.3g} ({_range(interval, lambda value: f'{value:.3g}')})"


def _range(interval: Mapping[str, float | None], spoken: Callable[[float], str]) -> str:
    """A unit that both ends have is said once."""
    low, high = ("none" if (value := interval[end]) is None else spoken(value) for end in ("low", "high"))
    number, _, unit = low.partition(" ")
    return low if low == high else f"{number if unit and high.endswith(f' {unit}') else low} to {high}"


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


def check_table(found: Sequence[Mapping[str, Any]]) -> RenderableType:
    heads = ["strategy", "compressor", "round trip", "rate", "predicted", "measured", "error", "target"]
    table = _empty([*heads, "WAN bytes predicted", "measured", "verdict", "run"])
    for one in found:
        where = [one["strategy"], one["compressor"], format_time(one["rtt_s"]), format_rate(one["rate_bit_s"])]
        predicted = f"{format_time(one['step_s']['estimate'])} ({_range(one['step_s'], format_time)})"
        sent = [one["wan_bytes_step"]["estimate"], one["measured_wan_bytes_step"]]
        bytes_ = [MISSING if value is None else f"{value:.4g}" for value in sent]
        if one["verdict"] is None:
            table.add_row(*where, predicted, MISSING, MISSING, MISSING, *bytes_, MISSING, one["why_not"])
            continue
        error = f"{one['error']:+.1%}{'' if one['is_within'] else ', outside'}"
        target = "met" if one["meets_target"] else "missed"
        measured = format_time(one["measured_step_s"])
        table.add_row(*where, predicted, measured, error, target, *bytes_, one["verdict"], one["run_id"])
    return Group(Text("checked by emulation (emulated against simulated)", style="bold"), table)


def _empty(heads: Sequence[str]) -> Table:
    table = Table(box=box.SIMPLE, title_justify="left")
    for head in heads:
        table.add_column(head, justify="left" if head in _LEFT else "right")
    return table
