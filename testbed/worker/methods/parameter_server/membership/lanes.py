"""Messages of a server and clients that do not wait for each other: each client has a lane of its own."""

from __future__ import annotations

import selectors
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from testbed.worker.device.clock import WAITING, PhaseClock
from testbed.worker.device.stopwatch import Stopwatch
from testbed.worker.methods.parameter_server.membership.clients import ConnectedClients
from testbed.worker.methods.parameter_server.transport.connection import Gone
from testbed.worker.methods.parameter_server.transport.frame_errors import Refused
from testbed.worker.methods.parameter_server.transport.frame_parser import Expected
from testbed.worker.methods.parameter_server.transport.frames import Buffer, Frame
from testbed.worker.methods.parameter_server.transport.transfers import Receiving, Sending, Transfer, attempt


@dataclass
class _Lane:
    transfer: Transfer[Any]
    expected: Expected | None
    """What is due once it is sent; None: nothing."""
    deadline_s: float


class Lanes:
    """In each a message goes to its client, and then one comes back; all in one thread, and none is waited for while
    another one can move. What does not end well puts its client out.

    Args:
        connected: of the clients.
        wait_s: wall seconds that a message may be under way to a client, and then those that one may be waited for.
    """

    def __init__(self, connected: ConnectedClients, *, wait_s: float, clock: PhaseClock, stopwatch: Stopwatch) -> None:
        self.connected, self._wait_s = connected, wait_s
        self._clock, self._stopwatch = clock, stopwatch
        self._selector = selectors.DefaultSelector()
        self._lanes: dict[int, _Lane] = {}
        self._arrived: deque[tuple[int, Frame]] = deque()
        self._away_s, self._left_s = 0.0, time.monotonic()
        """In the caller's hands, in which nothing could move: deadlines do not come nearer then."""

    def send(self, client: int, pieces: Sequence[Buffer], expected: Expected | None) -> None:
        """Begin to. What the kernel takes is under way when this returns; the rest follows while something is waited
        for.

        Args:
            client: one with a seat, from which nothing is due.
            pieces: of `Frame.pack`; must stay as they are until they are sent.
            expected: of what is due from it then; None: nothing is.
        """
        self._clock.mark()
        self._begin(client, Sending(self.connected.connection(client), pieces), expected)
        self._move(client, self._lanes[client].transfer.step)

    def next(self) -> tuple[int, Frame] | None:
        """A client, and what it has sent; in the order in which messages are whole.

        Returns:
            None where nothing more is under way, nor due.
        """
        self._away_s += time.monotonic() - self._left_s
        if not self._arrived and self._lanes:
            end = self._stopwatch.start()
            with self._clock.phase(WAITING):
                while not self._arrived and self._lanes:
                    self._turn()
            end()
        self._left_s = time.monotonic()
        return self._arrived.popleft() if self._arrived else None

    def let_in(self) -> set[int]:
        """Clients that have come back since the last time; nothing is due from them."""
        newcomers = self.connected.let_in()
        for client, lane in list(self._lanes.items()):
            if client not in self.connected.clients or lane.transfer.connection is not self.connected.connection(
                client
            ):
                self._drop(client)  # its connection is an older one, and closed
        known = set(self.connected.clients) - newcomers
        self._arrived = deque((client, frame) for client, frame in self._arrived if client in known)
        return newcomers

    def release(self, client: int) -> None:
        """Nothing is due from it any more; what is under way to it still arrives."""
        lane = self._lanes.get(client)
        if lane is None:
            return
        lane.expected = None
        if isinstance(lane.transfer, Receiving):
            self._drop(client)

    def close(self) -> None:
        self._selector.close()
        self.connected.close()

    def _turn(self) -> None:
        soonest_s = min(lane.deadline_s for lane in self._lanes.values())
        for item, _ in self._selector.select(max(0.0, soonest_s - self._now_s())):
            self._move(item.data, self._lanes[item.data].transfer.step)
        now_s = self._now_s()
        for client, lane in list(self._lanes.items()):
            if now_s >= lane.deadline_s:
                self._move(client, lane.transfer.expire)

    def _begin(self, client: int, transfer: Transfer[Any], expected: Expected | None) -> None:
        self._lanes[client] = _Lane(transfer, expected, self._now_s() + self._wait_s)
        self._selector.register(transfer.connection.socket, transfer.event, client)

    def _move(self, client: int, move: Callable[[], Any]) -> None:
        """By one of the methods of its transfer."""
        lane = self._lanes[client]
        end = attempt(lane.transfer, move)
        if end is None:
            return
        self._drop(client)
        if isinstance(end, Refused | Gone):
            self.connected.let_go(client, end)
        elif isinstance(end, Frame):
            self._arrived.append((client, end))
        elif lane.expected is not None:
            self._begin(client, Receiving(lane.transfer.connection, lane.expected), lane.expected)

    def _drop(self, client: int) -> None:
        self._selector.unregister(self._lanes.pop(client).transfer.connection.socket)

    def _now_s(self) -> float:
        return time.monotonic() - self._away_s
