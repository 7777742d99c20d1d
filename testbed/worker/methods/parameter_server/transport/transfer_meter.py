"""How fast a link took what was sent over it, by when it was acknowledged: what the kernel tells of each connection."""

from __future__ import annotations

import errno
import socket
import struct
import time
from collections.abc import Iterable
from dataclasses import dataclass

from testbed.core.errors import RunError
from testbed.worker.methods.parameter_server.transport.connection import Connection

_INFO_BYTES = 192
# offsets in struct tcp_info
_BYTES_ACKED, _MIN_RTT_US, _BUSY_US = 120, 148, 168
_NO_RTT = 2**32 - 1
_MONOTONIC_COARSE = 6
"""The clock of the kernel's timer, which `time` does not name."""
TICK_S = time.clock_getres(_MONOTONIC_COARSE)
"""The kernel counts the seconds in which a connection had something to send in ticks of its timer, 1 to 10 ms."""


@dataclass(frozen=True)
class Acknowledged:
    """Of one connection, since it was opened."""

    size_bytes: int
    busy_s: float
    """Wall seconds in which something was sent, or was to be acknowledged yet."""
    min_rtt_s: float
    """The shortest round trip; 0 where none was seen."""


class TransferMeter:
    """Measures one frame, to one or more connections that carry nothing else meanwhile.

    The round trip is taken off: a message needs it whether it is compressed or not. What is waited for by a receiver
    that does not read counts as the link's.
    """

    def __init__(self, dilation: float) -> None:
        self._dilation = dilation
        self._before: list[tuple[Connection, Acknowledged]] = []

    def begin(self, connections: Iterable[Connection]) -> None:
        """A frame is about to be sent."""
        self._before = [(one, acknowledged(one.socket)) for one in connections if not one.closed]

    def end(self) -> tuple[int, float] | None:
        """(bytes, emulated seconds) of the connection that took longest, once the others' answers say that it has all
        arrived; None: nothing was sent, or nobody is there any more."""
        before, self._before = self._before, []
        moved = [_moved(old, acknowledged(one.socket)) for one, old in before if not one.closed]
        found = max((one for one in moved if one[0] > 0), key=lambda one: one[1], default=None)
        return None if found is None else (found[0], found[1] / self._dilation)


def acknowledged(sock: socket.socket) -> Acknowledged:
    """
    Raises:
        RunError: this kernel does not tell.
    """
    try:
        info = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _INFO_BYTES)
    except OSError as error:
        if error.errno in (errno.ENOPROTOOPT, errno.EOPNOTSUPP):
            info = b""
        else:
            raise
    if len(info) < _BUSY_US + 8:
        raise RunError(
            f"the kernel tells {len(info)} bytes of a connection (TCP_INFO), and not how long it was busy, as it does"
            " from Linux 4.10 on; use strategy.gate=false"
        )
    (size_bytes,) = struct.unpack_from("=Q", info, _BYTES_ACKED)
    (min_rtt_us,) = struct.unpack_from("=I", info, _MIN_RTT_US)
    (busy_us,) = struct.unpack_from("=Q", info, _BUSY_US)
    return Acknowledged(size_bytes, busy_us / 1e6, 0.0 if min_rtt_us == _NO_RTT else min_rtt_us / 1e6)


def _moved(old: Acknowledged, new: Acknowledged) -> tuple[int, float]:
    """(bytes, wall seconds), which are a tick at least."""
    return new.size_bytes - old.size_bytes, max(new.busy_s - old.busy_s - new.min_rtt_s, TICK_S)
