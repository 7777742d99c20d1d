"""The analysis of a capture as text."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from testbed.core.files import printable
from testbed.core.record.table_formats import aligned
from testbed.core.units import format_rate, format_size, format_time

MAX_FLOWS = 12
"""Of a direction; JSON has all."""


def text(found: dict[str, Any]) -> str:
    return "\n".join(printable(line) for line in _lines(found))


def _lines(found: dict[str, Any]) -> Iterator[str]:
    size = format_size(found["most_bytes"] or 0)
    yield f"{found['run_id']}: capture={found['mode']}, {found['snaplen_bytes']} bytes a frame, {size} a file at most"
    yield ""
    yield from aligned([_TOTAL_HEADINGS, *(_totals(direction) for direction in found["directions"])])
    yield ""
    yield "bursts"
    yield from aligned([_BURST_HEADINGS, *(_bursts(direction) for direction in found["directions"])])
    yield ""
    yield "bytes from step 1 on, by the capture and by the queue's counter"
    yield from aligned([_COUNTER_HEADINGS, *(_counters(direction) for direction in found["directions"])])
    for direction in found["directions"]:
        yield ""
        yield f"flows of {_name(direction)}"
        shown = direction["flows"][:MAX_FLOWS]
        yield from aligned([_FLOW_HEADINGS, *(_flow(flow, found["addresses"]) for flow in shown)])
        if len(direction["flows"]) > len(shown):
            yield f"and {len(direction['flows']) - len(shown)} smaller ones (all with --json)"
    yield ""
    yield from found["notes"]
    yield from (f"warning: {warning}" for warning in found["warnings"])


_TOTAL_HEADINGS = ("direction", "frames", "packets", "bytes", "payload", "sent again", "probes", "cut", "lost")


def _totals(direction: dict[str, Any]) -> tuple[str, ...]:
    again, lacks = direction["retransmitted"], direction["lacks"]
    return (
        _name(direction),
        str(direction["frames"]),
        str(direction["packets"]),
        format_size(direction["wire_bytes"]),
        format_size(direction["payload_bytes"]),
        f"{again['frames']} frames, {format_size(again['bytes'])}",
        format_size(direction["probes"]["wire_bytes"]),
        "-" if lacks["cut_ratio"] is None else f"{lacks['cut_ratio']:.1%}",
        "-" if lacks["dropped_frames"] is None else str(lacks["dropped_frames"]),
    )


_BURST_HEADINGS = ("direction", "gap", "bursts", "p50", "p90", "max", "longest", "peak 1 ms", "peak 10 ms")


def _bursts(direction: dict[str, Any]) -> tuple[str, ...]:
    bursts, peak = direction["bursts"], direction["peak_bit_s"]
    sizes, lasts = bursts["bytes"] or {}, bursts["duration_s"] or {}
    return (
        _name(direction),
        format_time(bursts["gap_s"]),
        str(bursts["count"]),
        *(format_size(sizes[key]) if sizes else "-" for key in ("p50", "p90", "max")),
        format_time(lasts["max"]) if lasts else "-",
        format_rate(peak["1ms"]),
        format_rate(peak["10ms"]),
    )


_COUNTER_HEADINGS = ("direction", "until", "capture", "counter", "difference", "")


def _counters(direction: dict[str, Any]) -> tuple[str, ...]:
    counters = direction["counters"]
    if counters is None:
        return _name(direction), "-", "-", "-", "-", "no counter"
    ratio = counters["difference_ratio"]
    return (
        _name(direction),
        format_time(counters["until_t_s"]),
        str(counters["captured_bytes"]),
        str(counters["counted_bytes"]),
        "-" if ratio is None else f"{ratio:+.3%}",
        "agree" if counters["agrees"] else "DISAGREE",
    )


_FLOW_HEADINGS = ("", "from", "to", "packets", "bytes", "payload", "sent again")


def _flow(flow: dict[str, Any], names: dict[str, str]) -> tuple[str, ...]:
    ends = ((flow["source"], flow["source_port"]), (flow["target"], flow["target_port"]))
    return (
        flow["protocol"],
        *(f"{names.get(address, address)}:{port}" for address, port in ends),
        str(flow["packets"]),
        format_size(flow["wire_bytes"]),
        format_size(flow["payload_bytes"]),
        format_size(flow["retransmitted"]["bytes"]),
    )


def _name(direction: dict[str, Any]) -> str:
    return f"{direction['link']} {direction['from']}->{direction['to']}"
