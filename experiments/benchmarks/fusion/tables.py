"""Rules of fusion by round trip, and how near the search of a size came to the best that was found exhaustively."""

from __future__ import annotations

from collections.abc import Sequence

from experiments.benchmarks.fusion.measure import RTTS_S, RULED, RULES, SHARES, TUNED, size_bytes_of
from experiments.common.tables import Found, disturbed, number, table
from testbed.core.units import format_time

Fixed = dict[str, Found]


def rules(points: Sequence[Found]) -> str:
    texts = [_fixed(points, rtt_s) for rtt_s in RTTS_S]
    tuned = [point for point in points if point["asked"]["kind"] == TUNED]
    return "\n\n".join([*(text for text in texts if text), *(_search(point, points) for point in tuned)])


def _at(points: Sequence[Found], rtt_s: float) -> Fixed:
    return {point["asked"]["kind"]: point for point in points if point["asked"]["rtt_s"] == rtt_s}


def best_s(points: Sequence[Found], rtt_s: float) -> float | None:
    """Of a step, with the best fixed size; None while one of them is not measured."""
    found = _at(points, rtt_s)
    results = [found[share]["result"] for share in SHARES if share in found]
    may_be_believed = [result["step_s"] for result in results if result["verdict"] != "invalid"]
    return min(may_be_believed, default=None) if len(results) == len(SHARES) else None


def _fixed(points: Sequence[Found], rtt_s: float) -> str:
    found, best = _at(points, rtt_s), best_s(points, rtt_s)
    rows = []
    for kind in (*SHARES, *RULES):
        if kind not in found:
            continue
        result = found[kind]["result"]
        size = size_bytes_of(kind) / 1e6 if kind in SHARES else None
        rows.append(
            [
                f"size: {size:.2f} MB" if size is not None else _named(kind),
                str(result["buckets"]),
                number(result["step_s"], ".3f"),
                number(None if best is None else result["step_s"] / best, ".3f"),
                result["verdict"] + disturbed(found[kind]),
            ]
        )
    heads = (f"round trip {format_time(rtt_s)}", "buckets", "step, s", "to the best size", "verdict")
    return table(heads, rows) if rows else ""


def _named(rule: str) -> str:
    """With the size that it goes by, if it does."""
    size_bytes = size_bytes_of(RULED)
    return f"{rule}: {size_bytes / 1e6:.2f} MB" if rule == "first_small" else rule


def _search(point: Found, points: Sequence[Found]) -> str:
    rows = []
    for rtt_s, settled in zip(RTTS_S, point["result"]["settled"], strict=True):
        if settled is None:
            rows.append([format_time(rtt_s), *["-"] * 6, point["result"]["verdict"] + disturbed(point)])
            continue
        best = best_s(points, rtt_s)
        near = None if best is None or settled["step_s"] is None else settled["step_s"] / best
        rows.append(
            [
                format_time(rtt_s),
                str(settled["trials"]),
                number(settled["first_s"], ".3f"),
                f"{settled['size_bytes'] / 1e6:.2f} MB, {settled['buckets']}",
                number(settled["step_s"], ".3f"),
                number(best, ".3f"),
                number(near, ".3f"),
                point["result"]["verdict"] + disturbed(point),
            ]
        )
    heads = (
        *("search at", "trials", "first trial, s", "chosen size, buckets", "step then, s", "best fixed size, s"),
        *("to the best size", "verdict"),
    )
    return table(heads, rows)
