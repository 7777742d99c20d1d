"""A run's links on its page: what was asked of each, and what was measured."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from testbed.analysis.record.record import Record
from testbed.analysis.style import html_page
from testbed.core.units import format_rate, format_size, format_time

_LINK_HEADINGS = (
    "link",
    "from",
    "to",
    "WAN",
    "rate asked",
    "read back",
    "measured",
    "RTT asked",
    "measured",
    "loss asked",
    "measured",
    "sent",
)


def links(record: Record) -> tuple[str, str]:
    """Asked against measured, and what stands under it."""
    return html_page.table(_LINK_HEADINGS, _link_rows(record)), _remarks(record)


def measurements(record: Record) -> str:
    """Each of them; the table of links has the last one."""
    return html_page.table(_STAGE_HEADINGS, _stage_rows(record))


def shown(convert: Callable[[float], str], value: Any) -> str | None:
    return None if value is None else convert(value)


def _link_rows(record: Record) -> Iterator[tuple[object, ...]]:
    sent = {_direction(link): link.get("wire_bytes") for link in (record.summary or {}).get("links") or ()}
    for link in record.network.get("links") or ():
        asked, read_back, measured = (link.get(key) or {} for key in ("asked", "read_back", "measured"))
        yield (
            link.get("name"),
            link.get("from"),
            link.get("to"),
            "yes" if link.get("wan") else "no",
            shown(format_rate, asked.get("rate_bit_s")),
            shown(format_rate, read_back.get("rate_bit_s")),
            shown(format_rate, measured.get("rate_bit_s")),
            shown(format_time, asked.get("rtt_s")),
            shown(format_time, measured.get("rtt_s")),
            shown(_percent, asked.get("loss_ratio")),
            shown(_percent, measured.get("loss_ratio")),
            shown(format_size, sent.get(_direction(link))),
        )


_STAGE_HEADINGS = ("link", "from", "to", "stage", "rate", "RTT, median", "RTT, 99th percentile", "probes")


def _stage_rows(record: Record) -> Iterator[tuple[object, ...]]:
    for link in record.network.get("links") or ():
        for found in link.get("measurements") or ():
            yield (
                *_direction(link),
                found.get("stage"),
                shown(format_rate, found.get("rate_bit_s")),
                shown(format_time, found.get("rtt_s")),
                shown(format_time, found.get("rtt_max_s")),
                found.get("probes"),
            )


def _direction(link: dict[str, Any]) -> tuple[object, ...]:
    return link.get("name"), link.get("from"), link.get("to")


def _percent(ratio: float) -> str:
    return f"{100 * ratio:.3g} %"


def _remarks(record: Record) -> str:
    shaper, tcp = record.network.get("shaper"), record.network.get("tcp")
    return html_page.note(f"Shaper: {shaper or 'unknown'}. TCP profile: {tcp or 'unknown'}.")
