"""One flow of background traffic, both its ends, and what it put on the wire."""

from __future__ import annotations

import contextlib
import math
import os
import selectors
import socket
import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from testbed.orchestrator.emulation.kernel.namespaces import enter_network_namespace
from testbed.orchestrator.emulation.traffic.arrivals import HEADER_BYTES, SEGMENT_BYTES, SYN_OPTION_BYTES

PORT = 61_002
_CHUNK_BYTES = 724 * SEGMENT_BYTES
"""About 1 MB, and whole segments, so that a flow's last segment is its only short one."""
_IP_BIND_ADDRESS_NO_PORT = 24
_TCP_REPAIR = 19
_INFO_BYTES = 160
# offsets in struct tcp_info
_SEND_MSS, _UNACKNOWLEDGED, _BYTES_RECEIVED, _SEGMENTS_IN, _DATA_SEGMENTS_IN = 16, 24, 128, 140, 152


@dataclass
class Counts:
    """Of one direction, since the start."""

    flows: int = 0
    """That have begun."""
    finished: int = 0
    refused: int = 0
    """That should have begun while too many were unfinished."""
    failed: int = 0
    """Whose connection broke."""
    offered_bytes: int = 0
    """Of all flows that should have begun."""
    delivered_bytes: int = 0
    arrived_bytes: int = 0
    """On the wire at the far end."""
    acknowledging_bytes: int = 0
    """Likewise at the near end: what these flows cost the other direction."""


class Sockets:
    """What all flows share: the selector, whose keys bear what to call, and what is sent."""

    def __init__(self, congestion_control: str) -> None:
        self._congestion_control = congestion_control.encode()
        self._namespace = ""
        self.selector = selectors.DefaultSelector()
        self.chunk = os.memfd_create("background")
        os.write(self.chunk, bytes(_CHUNK_BYTES))  # real pages, since a hole would be filled anew for every flow
        self.sink = bytearray(_CHUNK_BYTES)

    def new(self, namespace: str) -> socket.socket:
        """This process has one thread, which may as well stay in the namespace of its last socket."""
        if namespace != self._namespace:
            enter_network_namespace(namespace)
            self._namespace = namespace
        found = socket.socket(socket.AF_INET, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        found.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, self._congestion_control)
        return found


class Flow:
    """One connection.

    Both ends are here, so nothing needs to be agreed over the wire: the receiver knows how much to expect, and when the
    last byte is acknowledged both ends vanish without a packet.

    Args:
        ends: addresses and namespaces ("from_address", "to_namespace", ...).
        ended: called once, when the last byte has come or the connection broke (`failed`).
    """

    def __init__(self, sockets: Sockets, ends: dict[str, Any], size_bytes: int, ended: Callable[[Flow], None]) -> None:
        self._sockets, self._ends, self._ended = sockets, ends, ended
        self._unsent = self._unreceived = self._size_bytes = size_bytes
        self._receiver: socket.socket | None = None
        self._sender = sockets.new(ends["from_namespace"])
        self.address = ("", 0)
        """Of the sender."""
        self.is_open = True
        self.failed = False

    def begin(self) -> None:
        self._sender.setsockopt(socket.IPPROTO_IP, _IP_BIND_ADDRESS_NO_PORT, 1)
        try:
            self._sender.bind((self._ends["from_address"], 0))
            with contextlib.suppress(BlockingIOError):
                self._sender.connect((self._ends["to_address"], PORT))
            self.address = self._sender.getsockname()
        except OSError:
            self._end(failed=True)
        else:
            self._sockets.selector.register(self._sender, selectors.EVENT_WRITE, self._guarded(self._send))

    def accepted(self, receiver: socket.socket) -> None:
        receiver.setblocking(False)
        self._receiver = receiver
        self._sockets.selector.register(receiver, selectors.EVENT_READ, self._guarded(self._receive))

    def _guarded(self, step: Callable[[], None]) -> Callable[[], None]:
        def work() -> None:
            if not self.is_open:
                return  # ended earlier in the same round of the loop
            try:
                step()
            except BlockingIOError:
                pass
            except OSError:
                self._end(failed=True)

        return work

    def _send(self) -> None:
        # without copying: what is sent are the same pages over and over
        self._unsent -= os.sendfile(self._sender.fileno(), self._sockets.chunk, 0, min(self._unsent, _CHUNK_BYTES))
        if not self._unsent:
            self._sockets.selector.unregister(self._sender)

    def _receive(self) -> None:
        assert self._receiver is not None
        most = min(self._unreceived, _CHUNK_BYTES)
        # MSG_TRUNC: the kernel discards what it would have copied
        received = self._receiver.recv_into(self._sockets.sink, most, socket.MSG_TRUNC)
        if not received:
            raise ConnectionResetError
        self._unreceived -= received
        if not self._unreceived:
            self._end(failed=False)

    def _end(self, *, failed: bool) -> None:
        self.is_open, self.failed = False, failed
        for end in (self._sender, self._receiver):
            if end is not None:
                with contextlib.suppress(KeyError):
                    self._sockets.selector.unregister(end)
        self._ended(self)

    @property
    def is_acknowledged(self) -> bool:
        """Whether nothing of it is under way any more; so too after a reset."""
        return not _number("I", _info(self._sender), _UNACKNOWLEDGED)

    def close(self) -> None:
        """In repair mode a connection ends without a FIN, so none remains in TIME_WAIT to hold a port."""
        for end in (self._sender, self._receiver):
            if end is not None:
                with contextlib.suppress(OSError):  # of one that is not connected
                    end.setsockopt(socket.IPPROTO_TCP, _TCP_REPAIR, 1)
                end.close()

    def add_to(self, counts: Counts) -> None:
        """What arrived counts, not what was sent: a full queue drops, and what it drops was never on the link."""
        sender = _info(self._sender)
        counts.delivered_bytes += self._size_bytes - self._unreceived
        counts.acknowledging_bytes += _headers(sender)
        if self._receiver is not None:
            receiver = _info(self._receiver)
            counts.arrived_bytes += _payload(receiver, _number("I", sender, _SEND_MSS)) + _headers(receiver)


def _info(end: socket.socket) -> bytes:
    return end.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _INFO_BYTES)


def _number(kind: str, info: bytes, offset: int) -> int:
    return int(struct.unpack_from(f"={kind}", info, offset)[0])


def _payload(info: bytes, segment_bytes: int) -> int:
    """All that came, also twice or ahead of what is missing: those segments are full ones, the last of a flow aside."""
    in_order_bytes = _number("Q", info, _BYTES_RECEIVED)
    others = _number("I", info, _DATA_SEGMENTS_IN) - math.ceil(in_order_bytes / segment_bytes)
    return in_order_bytes + max(0, others) * segment_bytes


def _headers(info: bytes) -> int:
    """Of all segments that came in. Selective acknowledgements make some longer: these options are not counted."""
    segments = _number("I", info, _SEGMENTS_IN)
    return segments * HEADER_BYTES + SYN_OPTION_BYTES if segments else 0
