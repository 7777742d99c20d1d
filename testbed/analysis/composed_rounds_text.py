"""Composed rounds as text."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from testbed.analysis.tables import aligned
from testbed.core.reading import printable
from testbed.core.units import format_rate, format_time

_HEADINGS = ("kind", "round time", "measured", "reckoned as made", "composed")
_OF_ALL: dict[str, Callable[[list[float]], float]] = {
    "mean": statistics.fmean,
    "median": statistics.median,
    "shortest": min,
    "longest": max,
}


def text(found: dict[str, Any]) -> str:
    return "\n".join(printable(line) for line in _lines(found))


def _lines(found: dict[str, Any]) -> Iterator[str]:
    rounds = found["rounds"]
    clients, workers = (_range([one[key] for one in rounds]) for key in ("clients", "workers"))
    yield f"{found['run_id']}: {len(rounds)} rounds of {clients} clients, which {workers} workers have run in sequence"
    links = found["links"]
    for way in ("down", "up"):
        rate, server, delay_s = (links[f"{way}_{key}"] for key in ("rate_bit_s", "server_rate_bit_s", "delay_s"))
        words = f"a client {format_rate(rate)}, the server {format_rate(server)}, {format_time(delay_s)} one way"
        yield f"composed with links {way}: {words}"
    yield ""
    yield from aligned([_HEADINGS, *(_row(found["kind"], name, rounds) for name in _OF_ALL)])
    yield ""
    yield "measured: of the run, its clients in sequence; reckoned as made: the same, by what composes the last column"
    yield from (f"warning: {note}" for note in found["notes"])


def _row(kind: str, name: str, rounds: Sequence[dict[str, Any]]) -> tuple[str, ...]:
    def of_all(key: str) -> float:
        return _OF_ALL[name]([one[key] for one in rounds])

    measured_s, made = of_all("measured_s"), "-"
    if all(one["as_made_s"] is not None for one in rounds):
        made = f"{of_all('as_made_s'):.4g} s ({of_all('as_made_s') / measured_s - 1:+.1%})"
    return kind, name, f"{measured_s:.4g} s", made, f"{of_all('composed_s'):.4g} s"


def _range(counts: Sequence[int]) -> str:
    least, most = min(counts), max(counts)
    return str(most) if least == most else f"{least} to {most}"
