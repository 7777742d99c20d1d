"""The rate of links, by filling them for a moment.

One blocking UDP socket whose send buffer is smaller than the link's queue: the queue is never empty and never
overflows. The rate is what the queue's own counter says left it while its backlog was above 0.
"""

from __future__ import annotations

import select
import socket
import statistics
import struct
import threading
import time
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

from testbed.orchestrator.emulation.measuring.endpoints import LATE_S, PORT, End, Link

_UDP_SEGMENT = 103
_MAX_SEGMENTS = 44
_MIN_UNITS_SENT = 200
"""In the time that a burst lasts, so that one more or less is half a per cent of its rate."""
_SAMPLE_EVERY_S = 0.01
_SETTLE_SHARE = 0.1
_HEADERS_BYTES = 42
"""Ethernet, IP and UDP."""
_MIN_UNITS = 20
_SO_TIMESTAMPNS = 35
_STAMP = struct.Struct("qq")


class Burst:
    """One direction filled for a while."""

    def __init__(self, link: Link, source: End, target: End, seconds: float) -> None:
        self.link, self.source, self.target, self.seconds = link, source, target, seconds
        self.sent_bytes = 0
        self.received_bytes = 0
        self.arrivals: list[tuple[int, int]] = []
        """Of each unit (a packet, or a super-packet) the kernel's time stamp in ns, and its payload."""
        self.done_sending = False
        self.threads = [threading.Thread(target=self._send), threading.Thread(target=self._receive)]

    @property
    def unit_bytes(self) -> int:
        """Payload that is sent at once: a super-packet, where the queue and the rate are large enough for it."""
        carried_bytes, segment_bytes = self.source.rate_bit_s / 8 * self.seconds, self.source.segment_bytes
        most_bytes = min(self.source.limit_bytes / 16, carried_bytes / _MIN_UNITS_SENT)
        return max(1, min(_MAX_SEGMENTS, int(most_bytes) // segment_bytes)) * segment_bytes

    def _send(self) -> None:
        payload = bytes(self.unit_bytes)
        end = self.source.burst
        end.setsockopt(socket.IPPROTO_UDP, _UDP_SEGMENT, self.source.segment_bytes)
        until_s = time.monotonic() + self.seconds
        while time.monotonic() < until_s:
            try:
                self.sent_bytes += end.sendto(payload, (self.target.address, PORT + 1))
            except TimeoutError:
                break
        self.done_sending = True

    def _receive(self) -> None:
        end = self.target.burst
        buffer = bytearray(1 << 16)
        poll = select.poll()
        poll.register(end, select.POLLIN)
        room = socket.CMSG_SPACE(_STAMP.size) + socket.CMSG_SPACE(4)
        while not (self.done_sending and self.received_bytes >= self.sent_bytes):
            wait_s = self.link.rtt_s + 0.3 if self.done_sending else LATE_S
            if not poll.poll(wait_s * 1e3):
                if self.done_sending:
                    break
                continue
            size_bytes, ancillary, _, _ = end.recvmsg_into([buffer], room)
            self.received_bytes += size_bytes
            for _, kind, data in ancillary:
                if kind == _SO_TIMESTAMPNS:
                    seconds, nanoseconds = _STAMP.unpack(data)
                    self.arrivals.append((seconds * 10**9 + nanoseconds, size_bytes))


def measure_rate(links: list[Link], seconds: float) -> Iterator[dict[str, Any]]:
    """Fill all given links, both ways, at once: they must be disjoint. One answer a link and direction."""
    bursts = [Burst(link, *ends, seconds) for link in links for ends in ((link.a, link.b), (link.b, link.a))]
    before = [burst.source.counters() for burst in bursts]
    samples: list[list[tuple[float, int, int]]] = [[] for _ in bursts]
    started_s = time.monotonic()
    for burst in bursts:
        for thread in burst.threads:
            thread.start()
    while any(burst.threads[0].is_alive() for burst in bursts):
        for burst, series in zip(bursts, samples, strict=True):
            counters = burst.source.counters()
            series.append((time.monotonic() - started_s, counters.sent_bytes, counters.backlog_bytes))
        time.sleep(_SAMPLE_EVERY_S)
    for burst in bursts:
        for thread in burst.threads:
            thread.join()
    for burst, series, first in zip(bursts, samples, before, strict=True):
        after = burst.source.counters()
        rate_bit_s, window_s = _full_rate(series, seconds)
        yield {
            "event": "burst",
            "name": burst.link.name,
            "from": burst.source.name,
            "to": burst.target.name,
            "rate_bit_s": rate_bit_s,
            "window_s": window_s,
            "wire_bytes": after.sent_bytes - first.sent_bytes,
            "drops": after.drops - first.drops,
            "gaps": gap_errors(burst.arrivals, burst.source.rate_bit_s, burst.source.segment_bytes),
            "arrived_ratio": burst.received_bytes / burst.sent_bytes if burst.sent_bytes else None,
        }


def gap_errors(arrivals: list[tuple[int, int]], rate_bit_s: float, segment_bytes: int) -> dict[str, float] | None:
    """How far the time between two units' arrivals is from the time the second takes at the link's rate, as a share.

    The unit is what left the limiter as one; its typical size is told along. Seen behind the whole link, so the delay's
    own unevenness is in it. The first tenth, in which the limiter's bucket empties, is left out.
    """
    kept = arrivals[max(1, len(arrivals) // 10) :]
    if len(kept) < _MIN_UNITS:
        return None
    errors = []
    for (before_ns, _), (at_ns, size_bytes) in pairwise(kept):
        wire_bytes = size_bytes + -(-size_bytes // segment_bytes) * _HEADERS_BYTES
        errors.append(abs((at_ns - before_ns) * 1e-9 / (wire_bytes * 8 / rate_bit_s) - 1))
    errors.sort()
    quantiles = {f"error_p{share}_ratio": errors[int(share / 100 * (len(errors) - 1))] for share in (50, 90, 99)}
    return {"unit_bytes": statistics.median(size for _, size in kept), **quantiles}


def _full_rate(series: list[tuple[float, int, int]], seconds: float) -> tuple[float | None, float]:
    """Bits a second over the longest run of samples with a backlog, after the bucket's first burst has gone."""
    best: tuple[float, int] = (0.0, 0)
    start: tuple[float, int] | None = None
    for at_s, sent_bytes, backlog_bytes in series:
        if at_s < _SETTLE_SHARE * seconds or backlog_bytes == 0:
            start = None
        elif start is None:
            start = (at_s, sent_bytes)
        elif at_s - start[0] > best[0]:
            best = (at_s - start[0], sent_bytes - start[1])
    window_s, sent = best
    return (sent * 8 / window_s if window_s > 0 else None), window_s
