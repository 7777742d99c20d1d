"""The clients of a server: who takes part, what comes from each, and why others are out."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from testbed.core.errors import RunError
from testbed.worker.device.clock import WAITING, PhaseClock
from testbed.worker.device.stopwatch import Stopwatch
from testbed.worker.methods.parameter_server.membership.admission import Admission
from testbed.worker.methods.parameter_server.transport.connection import Gone
from testbed.worker.methods.parameter_server.transport.frame_errors import Refusal, Refused
from testbed.worker.methods.parameter_server.transport.frame_parser import Expected
from testbed.worker.methods.parameter_server.transport.frames import Buffer, Frame
from testbed.worker.methods.parameter_server.transport.streams import Connection, gather, scatter
from testbed.worker.methods.parameter_server.transport.transfers import NO_PACE

_LAST_CALL_S = 15.0
"""Wall seconds: clients look for a server several times a second."""


class ConnectedClients:
    """Who sends what cannot be used, or nothing in time, is out for the rest of the run.

    Args:
        connections: of all clients, by their numbers.
        admission: by which who was lost comes back.
        message_s: wall seconds that a round's messages may be waited for, or be under way, each way.
        training_s: wall seconds that clients train in a round, before their messages can come.
    """

    def __init__(
        self,
        connections: dict[int, Connection],
        admission: Admission,
        *,
        message_s: float,
        training_s: float,
        clock: PhaseClock,
        stopwatch: Stopwatch,
    ) -> None:
        self._connections, self._admission = connections, admission
        self._message_s, self._training_s = message_s, training_s
        self._clock, self._stopwatch = clock, stopwatch
        self.left: dict[str, str] = {}
        """Clients that are out, and why."""

    @property
    def clients(self) -> list[int]:
        return sorted(self._connections)

    @property
    def connections(self) -> list[Connection]:
        return list(self._connections.values())

    def connection(self, client: int) -> Connection:
        return self._connections[client]

    def let_in(self) -> set[int]:
        """Those who have come back since the last time; they know no model. Nobody is waited for.

        Who holds one has lost a server, and comes too late to the one that has taken its place.
        """
        newcomers = set()
        for hello in self._admission.hellos(self._connections):
            if hello.round:
                newcomers.discard(hello.sender)
                asked = "its hello to the server that was started again"
                self.let_go(hello.sender, Refused(Refusal.LATE, found="nothing", asked=asked), self._admission.expected)
            else:
                newcomers.add(hello.sender)
                self.left.pop(str(hello.sender), None)
        return newcomers

    def let_back_in(self, clients: Collection[int], *, is_last: bool = False) -> dict[int, Frame]:
        """What those say who come to a server that takes the place of another.

        Args:
            clients: who had a seat there, and are waited for.
            is_last: whether it is the last model that they may lack; who has it is done, and does not come.
        """
        hellos: dict[int, Frame] = {}
        wait_s = self._training_s + self._message_s
        if is_last:
            wait_s = min(wait_s, _LAST_CALL_S)
        with self._clock.phase(WAITING):
            for hello in self._admission.hellos(self._connections, wait_s):
                hellos[hello.sender] = hello
                self.left.pop(str(hello.sender), None)
                if hellos.keys() >= set(clients):
                    break
        for client in set() if is_last else set(clients) - hellos.keys():
            self.left[str(client)] = f"did not come to the server that was started again, in {wait_s:g} s of wall time"
        return hellos

    def send(self, frames: Mapping[int, Sequence[Buffer]]) -> None:
        """A frame to each of these clients."""
        self._clock.mark()
        deadline_s = time.monotonic() + self._message_s
        for client, end in self._waiting(scatter(self._connections, frames, deadline_s=deadline_s, pace=NO_PACE)):
            if isinstance(end, Refused | Gone):
                self.let_go(client, end)

    def frames(self, expected: Expected, clients: Collection[int] | None = None) -> Iterator[tuple[int, Frame]]:
        """One of each client, as they come, but of those that are out by then.

        Args:
            expected: of each.
            clients: of these alone.
        """
        asked = {one: link for one, link in self._connections.items() if clients is None or one in clients}
        deadline_s = time.monotonic() + self._training_s + self._message_s
        for client, end in self._waiting(gather(asked, expected, deadline_s=deadline_s, pace=NO_PACE)):
            if isinstance(end, Frame):
                yield client, end
            else:
                self.let_go(client, end)

    def let_go(self, client: int, why: Exception, expected: Expected | None = None) -> None:
        """
        Args:
            expected: of what it has sent, if that is why, and it is to be told.
        """
        connection = self._connections.pop(client)
        self.left[str(client)] = str(why)
        if expected is not None and not connection.closed:
            refused = why if isinstance(why, Refused) else Refused(Refusal.TENSOR, found=str(why), asked="sound")
            connection.refuse(refused, expected)
        connection.close()

    def require_some(self) -> None:
        """
        Raises:
            RunError: all are out; says why of each.
        """
        if not self._connections:
            raise RunError("no client is left", *(f"client {one}: {why}" for one, why in self.left.items()))

    def close(self) -> None:
        self._admission.close()
        for connection in self._connections.values():
            connection.close()

    def _waiting(self, coming: Iterator[Any]) -> Iterator[Any]:
        """Each as it comes; what is done between two of them is no waiting."""
        while True:
            end = self._stopwatch.start()
            with self._clock.phase(WAITING):
                found = next(coming, None)
            end()
            if found is None:
                return
            yield found
