"""A run's links on its page: target and measured values."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from testbed.analysis.record.record import Record
from testbed.analysis.report.measured_table import Column, measured_table
from testbed.analysis.style import html_page

_LINK_COLUMNS: tuple[Column, ...] = (
    *("link", "from", "to", "WAN", ("target rate", "rate")),
    *(("read back", "rate", "target rate"), ("measured", "rate", "target rate")),
    *(("target RTT", "time"), ("measured", "time", "target RTT")),
    *(("target loss", "ratio"), ("measured", "ratio"), ("sent", "size")),
)


def links(record: Record) -> tuple[str, str]:
    """Return target and measured values of each link, and the note under them."""
    return measured_table(_LINK_COLUMNS, _link_rows(record)), _remarks(record)


def measurements(record: Record) -> str:
    """Return every measurement; the table of links has the last one."""
    return measured_table(_STAGE_COLUMNS, _stage_rows(record))


def _link_rows(record: Record) -> Iterator[tuple[object, ...]]:
    sent = {_direction(link): link.get("wire_bytes") for link in (record.summary or {}).get("links") or ()}
    for link in record.network.get("links") or ():
        asked, read_back, measured = (link.get(key) or {} for key in ("asked", "read_back", "measured"))
        yield (
            link.get("name"),
            link.get("from"),
            link.get("to"),
            "yes" if link.get("wan") else "no",
            *(values.get("rate_bit_s") for values in (asked, read_back, measured)),
            *(values.get(key) for key in ("rtt_s", "loss_ratio") for values in (asked, measured)),
            sent.get(_direction(link)),
        )


_STAGE_COLUMNS: tuple[Column, ...] = (
    *("link", "from", "to", "stage", ("rate", "rate"), ("RTT, median", "time"), ("RTT, 99th percentile", "time")),
    "probes",
)


def _stage_rows(record: Record) -> Iterator[tuple[object, ...]]:
    for link in record.network.get("links") or ():
        for found in link.get("measurements") or ():
            yield (
                *_direction(link),
                found.get("stage"),
                *(found.get(key) for key in ("rate_bit_s", "rtt_s", "rtt_max_s", "probes")),
            )


def _direction(link: dict[str, Any]) -> tuple[object, ...]:
    return link.get("name"), link.get("from"), link.get("to")


def _remarks(record: Record) -> str:
    shaper, tcp = record.network.get("shaper"), record.network.get("tcp")
    return html_page.note(f"Shaper: {shaper or 'unknown'}. TCP profile: {tcp or 'unknown'}.")
