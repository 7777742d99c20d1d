"""Links of a summary, with their bytes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol

Direction = tuple[str, str, str]
"""Direction of a link: (link, from, to)."""


class Counted(Protocol):
    """Events of a record, counted."""

    wire_bytes: dict[Direction, Any]
    has_events: bool

    def changes(self, link: str, source: str) -> int: ...

    def payload_bytes(self, steps: list[int]) -> int | float | None: ...

    def dense_bytes(self, steps: list[int], workers: int) -> float | None: ...


def nodes_of(spec: dict[str, Any]) -> list[str]:
    """Return the names of a spec's nodes by rank."""
    return [node["name"] for node in (spec.get("topology") or {}).get("nodes", ())]


def directions_of(spec: dict[str, Any], network: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield every direction as `network.json` tells it; before that file is written, as the spec asks for it."""
    if network.get("links"):
        yield from network["links"]
        return
    for link in (spec.get("topology") or {}).get("links", ()):
        rtt_s = link["forward"]["delay_s"] + link["backward"]["delay_s"]
        for start, end, profile in ((link["a"], link["b"], "forward"), (link["b"], link["a"], "backward")):
            asked = {**link[profile], "rtt_s": rtt_s}
            yield {"name": link["name"], "from": start, "to": end, "wan": link["wan"], "asked": asked}


def links(spec: dict[str, Any], network: dict[str, Any], record: Counted) -> list[dict[str, Any]]:
    """Return `links` of the summary: target and measured values as built, bytes, and how often events changed it."""
    found = []
    for direction in directions_of(spec, network):
        asked, measured = direction.get("asked") or {}, direction.get("measured") or {}
        link = {key: direction[key] for key in ("name", "from", "to", "wan")}
        link["wire_bytes"] = record.wire_bytes.get((link["name"], link["from"], link["to"]))
        for key in ("rate_bit_s", "rtt_s", "loss_ratio"):
            link[key] = {"asked": asked.get(key), "measured": measured.get(key)}
        link["changes"] = record.changes(link["name"], link["from"]) if record.has_events else None
        found.append(link)
    return found


def sent(spec: dict[str, Any], record: Counted, steps: list[int], links: list[dict[str, Any]]) -> dict[str, Any]:
    """Return `bytes` of the summary; null is what the record does not tell."""
    nodes = set(nodes_of(spec))
    return {
        "payload": record.payload_bytes(steps),
        "wire_total": _sum_of_all([link["wire_bytes"] for link in links if not link["wan"] and link["from"] in nodes]),
        "wire_wan": _sum_of_all([link["wire_bytes"] for link in links if link["wan"]]),
        "dense": record.dense_bytes(steps, len(nodes)),
    }


def _sum_of_all(values: list[Any]) -> Any:
    """None if one of them is unknown: part of a sum would pass for the whole."""
    return sum(values) if values and all(value is not None for value in values) else None
