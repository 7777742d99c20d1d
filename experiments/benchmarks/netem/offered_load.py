"""The rate of a link to which a paced stream offers more than it carries: what arrives, by the kernel's time stamps.

Where a delay stands before the limiter, as in Mininet's `TCLink`, the sender's buffer does not fill, so that nothing
would tell a burst of ours that the queue is full.
"""

from __future__ import annotations

import select
import socket
import struct
import threading
import time
from typing import Any

from testbed.orchestrator.emulation.kernel.namespaces import in_network_namespace

_PORT = 61_900
_TIMES = 1.25
"""Of the link's rate."""
_SEND_S, _SETTLE_S, _LATE_S = 1.4, 0.3, 0.3
_UNIT_S = 2**-10
"""Seconds of the link's rate that are sent at once, as much as TCP puts into one super-packet.

Larger ones tell of the machine: a limiter cuts what exceeds its burst into single packets, and 44 of them for each
super-packet stalled an emulated core for up to 50 ms, in which the queue ran dry."""
_UDP_SEGMENT, _UDP_GRO = 103, 104
_SEGMENT_BYTES, _MAX_SEGMENTS, _HEADERS_BYTES = 1472, 44, 42
_SO_TIMESTAMPNS = 35
_SO_SNDBUFFORCE, _SO_RCVBUFFORCE = 32, 33
_BUFFER_BYTES = 32 << 20
_STAMP = struct.Struct("qq")


def filled_rate_bit_s(link: dict[str, Any], source: dict[str, Any], target: dict[str, Any]) -> float | None:
    """From one end of a link, as `testnet.link_of` gives it, to the other; None if too little arrived."""
    sender, receiver = (in_network_namespace(end["namespace"], _socket(end)) for end in (source, target))
    with sender, receiver:
        thread = threading.Thread(target=_send, args=(sender, target["address"], source["rate_bit_s"]))
        thread.start()
        arrivals = _receive(receiver, thread, link["rtt_s"] + _LATE_S)
        thread.join()
    if not arrivals:
        return None
    first_s = arrivals[0][0]
    kept = [(at_s, size) for at_s, size in arrivals if _SETTLE_S <= at_s - first_s <= _SEND_S]
    if len(kept) < 2:
        return None
    return sum(size for _, size in kept[1:]) * 8 / (kept[-1][0] - kept[0][0])


def _socket(end: dict[str, Any]) -> Any:
    def make() -> socket.socket:
        found = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        found.setsockopt(socket.SOL_SOCKET, _SO_SNDBUFFORCE, _BUFFER_BYTES)
        found.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, _BUFFER_BYTES)
        found.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1)
        found.setsockopt(socket.IPPROTO_UDP, _UDP_GRO, 1)
        found.bind((end["address"], _PORT))
        return found

    return make


def unit_segments(rate_bit_s: float) -> int:
    """Return the number of packets that are sent at once."""
    return round(min(max(1, rate_bit_s / 8 * _UNIT_S / _SEGMENT_BYTES), _MAX_SEGMENTS))


def _send(end: socket.socket, address: str, rate_bit_s: float) -> None:
    offered_byte_s, segments = _TIMES * rate_bit_s / 8, unit_segments(rate_bit_s)
    end.setsockopt(socket.IPPROTO_UDP, _UDP_SEGMENT, _SEGMENT_BYTES)
    payload = bytes(segments * _SEGMENT_BYTES)
    due_s = started_s = time.monotonic()
    while due_s - started_s < _SEND_S:
        time.sleep(max(0.0, due_s - time.monotonic()))
        end.sendto(payload, (address, _PORT))
        due_s += segments * (_SEGMENT_BYTES + _HEADERS_BYTES) / offered_byte_s


def _receive(end: socket.socket, sending: threading.Thread, late_s: float) -> list[tuple[float, int]]:
    """(time, bytes on the wire) of what arrives until nothing does for `late_s`."""
    found = []
    while select.select([end], [], [], late_s)[0] or sending.is_alive():
        if not select.select([end], [], [], 0)[0]:
            continue
        size_bytes, ancillary, _, _ = end.recvmsg_into([bytearray(1 << 16)], socket.CMSG_SPACE(_STAMP.size) + 64)
        wire_bytes = size_bytes + -(-size_bytes // _SEGMENT_BYTES) * _HEADERS_BYTES
        for _, kind, data in ancillary:
            if kind == _SO_TIMESTAMPNS:
                seconds, nanoseconds = _STAMP.unpack(data)
                found.append((seconds + nanoseconds * 1e-9, wire_bytes))
    return found
