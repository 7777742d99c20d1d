"""The table that a run ends with, from its summary alone."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from testbed.core.files import printable
from testbed.core.record.summary import compressor_label, left_out_line
from testbed.core.units import column_unit, significant
from testbed.orchestrator.terminal.display import VERDICT_STYLES
from testbed.orchestrator.terminal.spoken import MISSING, number, spoken, spoken_size, spoken_time


def final_table(summary: Mapping[str, Any], run_path: Path) -> RenderableType:
    """What was asked and measured, what it cost, what it gave, and whether to believe it. Missing values are dashes."""
    parts: list[RenderableType] = [Text(_title(summary), style="bold")]
    if summary.get("links"):
        parts += [_links(summary), *_changed(summary)]
    parts += [_results(summary), _verdict(summary), Text(f"run directory: {run_path}", overflow="fold")]
    return Group(*parts)


def _title(summary: Mapping[str, Any]) -> str:
    told = {**summary, "compressor": compressor_label(summary)}
    names = [printable(told.get(key) or MISSING) for key in ("topo", "workload", "strategy", "compressor", "device")]
    workers, at_end = summary.get("workers"), summary.get("workers_at_end")
    workers = workers if at_end in (None, workers) else f"{workers} (at the end {at_end})"
    kind = printable(summary.get("kind") or MISSING)
    if summary.get("dilation") not in (None, 1):
        kind += f", dilation {spoken(summary.get('dilation'))}"
    if summary.get("scale") not in (None, 1):
        kind += f", bytes and rates over {spoken(summary.get('scale'))}"
    return f"{'  '.join(names)}  {MISSING if workers is None else workers} workers  ({kind})"


def _of(values: Any, key: str) -> Any:
    return values.get(key) if isinstance(values, Mapping) else None


_BOTH = (("rate", "rate_bit_s", "rate"), ("RTT", "rtt_s", "time"), ("loss", "loss_ratio", "ratio"))
"""Heading, key and kind of what links have a target and a measured value of."""


def _links(summary: Mapping[str, Any]) -> Table:
    """Return WAN links each way, one unit a column; access links only where there is nothing else."""
    links = [link for link in summary["links"] if isinstance(link, Mapping)]
    shown = [link for link in links if link.get("wan")] or links
    # a column of zeros is left out: the table is to fit 80 characters
    lossy = any(_of(link.get("loss_ratio"), key) for link in shown for key in _SIDES)
    both = _BOTH if lossy else _BOTH[:-1]
    units = {key: _unit((_asked(link.get(key)) for link in shown), kind) for _, key, kind in both}
    sent, sent_name = _unit((link.get("wire_bytes") for link in shown), "size")
    table = Table(box=box.SIMPLE_HEAD)
    table.add_column("link")
    for heading in (*(f"{head} target, measured ({units[key][1]})" for head, key, _ in both), f"bytes ({sent_name})"):
        table.add_column(heading, justify="right")
    for link in shown:
        table.add_row(
            printable(f"{link.get('from') or MISSING} -> {link.get('to') or MISSING}"),
            *(", ".join(_in(units[key][0], _of(link.get(key), side)) for side in _SIDES) for _, key, _ in both),
            _in(sent, link.get("wire_bytes")),
        )
    return table


_SIDES = ("asked", "measured")


def _asked(both: Any) -> Any:
    """What was asked has the same unit in each run, and what is measured may lie on either side of one."""
    return next((value for side in _SIDES if (value := _of(both, side)) is not None), None)


def _unit(values: Iterable[Any], kind: str) -> tuple[float, str]:
    if kind == "ratio":
        return 0.01, "%"
    return column_unit((found for value in values if (found := number(value)) is not None), kind)


def _in(unit: float, value: Any) -> str:
    found = number(value)
    return MISSING if found is None else significant(found / unit)


def _changed(summary: Mapping[str, Any]) -> Iterator[Text]:
    """Yield a note for links that events changed: what the table has is of the time before."""
    changed = [link for link in summary["links"] if isinstance(link, Mapping) and link.get("changes")]
    if changed:
        count = max(int(number(link["changes"]) or 1) for link in changed)
        names = ", ".join(dict.fromkeys(printable(link.get("name")) for link in changed))
        times = "once" if count == 1 else f"up to {count} times"
        yield Text(f"target and measured before the training; events then changed {names} {times}, see the report")


def _results(summary: Mapping[str, Any]) -> Table:
    sent, step, phases, metric = (summary.get(key) for key in ("bytes", "step_time_s", "phase_s", "metric"))
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    reached = spoken_time(_of(metric, "time_to_target_s"))
    value = f"last {spoken(_of(metric, 'value'))}, best {spoken(_of(metric, 'best'))}"
    if _of(metric, "name"):
        table.add_row(
            printable(_of(metric, "name")), f"{value}, {spoken(_of(metric, 'target'))} reached after {reached}"
        )
    time_s, wall_s = spoken_time(summary.get("time_s")), spoken_time(summary.get("wall_s"))
    kind = summary.get("kind") or MISSING
    steps = "" if summary.get("steps") is None else f"{spoken(summary.get('steps'), '{:.0f}')} in "
    table.add_row("steps" if steps else "time", f"{steps}{time_s} {kind}, {wall_s} wall-clock")
    if _of(step, "mean") is not None:
        words = {"mean": "mean", "p50": "median", "p95": "p95", "exchange_p50": "median with an exchange"}
        known = {word: _of(step, key) for key, word in words.items() if key != "exchange_p50" or _of(step, key)}
        if known.get(words["exchange_p50"]) == _of(step, "p50"):
            known.pop(words["exchange_p50"], None)
        table.add_row("step time", "  ".join(f"{word} {spoken_time(value)}" for word, value in known.items()))
    if isinstance(phases, Mapping) and any(value is not None for value in phases.values()):
        table.add_row("phases", "  ".join(f"{str(k).replace('_', ' ')} {spoken_time(v)}" for k, v in phases.items()))
    names = {"payload": "payload", "wire_total": "on the wire", "wire_wan": "over the WAN", "dense": "dense"}
    table.add_row("bytes", "  ".join(f"{word} {spoken_size(_of(sent, key))}" for key, word in names.items()))
    if summary.get("compression_ratio") is not None:
        table.add_row("compression", f"{spoken(summary.get('compression_ratio'))} (dense bytes / payload bytes)")
    return table


def _verdict(summary: Mapping[str, Any]) -> Text:
    verdict = printable(summary.get("verdict") or MISSING)
    text = Text.assemble(printable(summary.get("status") or MISSING), ", ", (verdict, VERDICT_STYLES.get(verdict, "")))
    if verdict == "invalid":
        text.append(": do not use these numbers")
    for reason in summary.get("reasons") or ():
        text.append(f"\n  {printable(reason)}")
    if (line := left_out_line(summary)) is not None:
        text.append(f"\n  {printable(line)}", "dim")
    for unknown in summary.get("unknowns") or ():
        text.append(f"\n  not checked: {printable(unknown)}", "dim")
    return text
