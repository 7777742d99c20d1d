"""Flows in one direction of a link, what of them was sent again, and how their packets bunch."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from ipaddress import IPv4Address
from typing import Any

import numpy as np
from numpy.typing import NDArray

from testbed.analysis.capture.pcap import FIN, SYN, TCP, UDP, Column, Frames

_PROTOCOLS = {TCP: "tcp", UDP: "udp", 1: "icmp", 0: "not IPv4"}
WINDOWS_S = {"1ms": 1e-3, "10ms": 1e-2}


def flows(frames: Frames, chosen: NDArray[np.bool_], t_s: NDArray[np.float64]) -> list[dict[str, Any]]:
    """By protocol, addresses and ports; the largest first."""
    found = []
    for rows in _by_flow(frames, chosen):
        first = rows[0]
        protocol = int(frames.protocol[first])
        sent_again = retransmitted(frames, rows) if protocol == TCP else {"frames": 0, "bytes": 0}
        found.append(
            {
                "protocol": _PROTOCOLS.get(protocol, str(protocol)),
                "source": str(IPv4Address(int(frames.source[first]))),
                "source_port": int(frames.source_port[first]),
                "target": str(IPv4Address(int(frames.target[first]))),
                "target_port": int(frames.target_port[first]),
                "frames": len(rows),
                "packets": int(frames.segments[rows].sum()),
                "wire_bytes": int(frames.wire_bytes[rows].sum()),
                "payload_bytes": int(frames.payload_bytes[rows].sum()),
                "retransmitted": sent_again,
                "first_t_s": float(t_s[first]),
                "last_t_s": float(t_s[rows[-1]]),
            }
        )
    return sorted(found, key=lambda flow: -flow["wire_bytes"])


def _by_flow(frames: Frames, chosen: NDArray[np.bool_]) -> Iterator[Column]:
    """Row numbers of each flow, in the file's order."""
    rows = np.flatnonzero(chosen)
    if not len(rows):
        return
    ends = frames.source[rows] << 32 | frames.target[rows]
    rest = frames.protocol[rows] << 32 | frames.source_port[rows] << 16 | frames.target_port[rows]
    _, by_ends = np.unique(ends, return_inverse=True)
    kinds, by_rest = np.unique(rest, return_inverse=True)
    flow = by_ends * len(kinds) + by_rest
    order = np.argsort(flow, kind="stable")
    changes = np.flatnonzero(np.diff(flow[order])) + 1
    yield from np.split(rows[order], changes)


def retransmitted(frames: Frames, rows: Column) -> dict[str, int]:
    """Of a TCP flow: frames that carry anything seen before, and how many bytes of sequence space that is.

    Data that is behind what was seen and fills a hole is new here: it was lost or overtaken before this link.
    """
    sequence, is_syn = frames.sequence[rows], frames.flags[rows] & SYN != 0
    syns = np.flatnonzero(is_syn)
    # the ports of a connection that ended may serve another: it begins with another number
    begins = syns[1:][sequence[syns[1:]] != sequence[syns[:-1]]] if len(syns) else syns
    total = {"frames": 0, "bytes": 0}
    for connection in np.split(rows, begins):
        for count_bytes in _seen_before(frames, connection):
            total["frames"] += 1
            total["bytes"] += count_bytes
    return total


def _seen_before(frames: Frames, rows: Column) -> Iterator[int]:
    """Bytes seen before, of each frame that holds some."""
    flags = frames.flags[rows]
    length = frames.payload_bytes[rows] + (flags & SYN != 0) + (flags & FIN != 0)
    rows, length = rows[length > 0], length[length > 0]
    if not len(rows):
        return
    steps = np.diff(frames.sequence[rows])
    start = np.concatenate(([0], np.cumsum((steps + 2**31) % 2**32 - 2**31)))  # the number wraps at 2**32
    end = start + length
    expected = np.concatenate(([0], np.maximum.accumulate(end)[:-1]))
    holes: list[tuple[int, int]] = []
    for place in np.flatnonzero(start != expected):
        low, high, top = int(start[place]), int(end[place]), int(expected[place])
        if low > top:
            holes.append((top, low))
            continue
        low, high = max(low, 0), min(high, top)  # what came before the capture began was not seen
        count_bytes = max(0, high - low) - _fill(holes, low, high)
        if count_bytes > 0:
            yield count_bytes


def _fill(holes: list[tuple[int, int]], low: int, high: int) -> int:
    """Take [low, high) out of the ascending `holes`; return how much of it was in them."""
    filled = 0
    place = max(0, bisect_right(holes, (low, low)) - 1)
    while place < len(holes) and holes[place][0] < high:
        start, end = holes[place]
        inside = min(end, high) - max(start, low)
        if inside <= 0:
            place += 1
            continue
        filled += inside
        left = [(a, b) for a, b in ((start, max(start, low)), (min(end, high), end)) if a < b]
        holes[place : place + 1] = left
        place += len(left)
    return filled


def bursts(t_s: NDArray[np.float64], size_bytes: Column, gap_s: float) -> dict[str, Any]:
    """Runs of frames less than `gap_s` apart: how many, and the distribution of their sizes."""
    if not len(t_s):
        return {"gap_s": gap_s, "count": 0, "bytes": None, "frames": None, "duration_s": None}
    first = np.concatenate(([0], np.flatnonzero(np.diff(t_s) >= gap_s) + 1))
    last = np.concatenate((first[1:], [len(t_s)])) - 1
    return {
        "gap_s": gap_s,
        "count": len(first),
        "bytes": _distribution(np.add.reduceat(size_bytes, first)),
        "frames": _distribution(last - first + 1),
        "duration_s": _distribution(t_s[last] - t_s[first]),
    }


def _distribution(values: NDArray[Any]) -> dict[str, float]:
    p50, p90, p99 = np.percentile(values, (50, 90, 99))
    return {"p50": float(p50), "p90": float(p90), "p99": float(p99), "max": float(values.max())}


def peaks(t_s: NDArray[np.float64], size_bytes: Column) -> dict[str, float]:
    """The most bits a second that leave within any window of each length; a window begins with a frame."""
    sums = np.concatenate(([0], np.cumsum(size_bytes)))
    found = {}
    for name, window_s in WINDOWS_S.items():
        after = np.searchsorted(t_s, t_s + window_s, side="left")
        within = sums[after] - sums[:-1]
        found[name] = float(within.max() * 8 / window_s) if len(within) else 0.0
    return found
