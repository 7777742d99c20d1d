"""Content of the page of one run: its verdict, its settings, its links on a drawing, its events."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator
from typing import Any

from testbed.analysis.record.record import Record, is_finite
from testbed.analysis.record.run_settings import asked
from testbed.core.record.run_row import Row
from testbed.core.record.summary import left_out_line
from testbed.core.spec.topology_svg import svg

BULK = frozenset(("step", "link", "rtt", "delay_line", "tcp", "node", "host", "measurement", "evaluation"))
"""Kinds of events that are drawn; a list of them would be too long to read."""
MAX_EVENTS = 500


def details(record: Record, row: Row) -> dict[str, Any]:
    """Return what is known of a run but its events."""
    summary = record.summary or {}
    spec = record.spec
    return {
        "row": row,
        "is_ended": record.run.summary.exists(),
        "reasons": summary.get("reasons") or [],
        "notes": [line for line in [left_out_line(summary)] if line],
        "unknowns": summary.get("unknowns") or [],
        "faults": list(record.faults),
        "settings": sorted(asked(spec).items()),
        "target": ((summary.get("metric") or {}).get("target")) if summary else (spec.target if spec else None),
        "steps": spec.steps if spec else None,
        "links": list(_links(record)),
        "svg": svg(spec.topology) if spec else None,
        "path": str(record.run.path),
    }


def _links(record: Record) -> Iterator[dict[str, Any]]:
    """Yield each direction of each link: target and measured values in base units, and the share that was used."""
    summary = record.summary or {}
    sent = {_direction(link): link.get("wire_bytes") for link in summary.get("links") or ()}
    for link in record.network.get("links") or ():
        target, measured = (link.get(key) or {} for key in ("asked", "measured"))
        sent_bytes, rate_bit_s, time_s = sent.get(_direction(link)), target.get("rate_bit_s"), summary.get("time_s")
        yield {
            **{key: link.get(key) for key in ("name", "from", "to", "wan")},
            **{f"target_{key}": target.get(key) for key in ("rate_bit_s", "rtt_s", "loss_ratio")},
            **{f"measured_{key}": measured.get(key) for key in ("rate_bit_s", "rtt_s", "loss_ratio")},
            "sent_bytes": sent_bytes,
            "use_ratio": _use_ratio(sent_bytes, rate_bit_s, time_s),
        }


def _use_ratio(sent_bytes: object, rate_bit_s: object, time_s: object) -> float | None:
    """Return the mean share of a link's target rate that was used; None if it is not known."""
    if is_finite(sent_bytes) and is_finite(rate_bit_s) and is_finite(time_s) and rate_bit_s > 0 and time_s > 0:
        return 8 * sent_bytes / (rate_bit_s * time_s)
    return None


def _direction(link: dict[str, Any]) -> tuple[Any, ...]:
    return link.get("name"), link.get("from"), link.get("to")


def events(record: Record, kind: str | None) -> dict[str, Any]:
    """Return {"kinds": number of events by kind, "events": the first of one kind, or of all that are not `BULK`}."""
    counts: Counter[str] = Counter()

    def counted() -> Iterator[dict[str, Any]]:
        for event in record.run.read_events():
            name = str(event["event"])
            counts[name] += 1
            if name == kind or (not kind and name not in BULK):
                yield event

    found = list(itertools.islice(stream := counted(), MAX_EVENTS))
    for _ in stream:
        pass
    return {"kinds": dict(sorted(counts.items())), "events": found, "max_events": MAX_EVENTS}
