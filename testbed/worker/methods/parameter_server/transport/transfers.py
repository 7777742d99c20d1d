"""Frames under way in either direction, many at once, in one thread: none is waited for longer than is allowed."""

from __future__ import annotations

import selectors
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Generic, TypeVar

from testbed.core.files import printable
from testbed.core.parameters import number, raise_all
from testbed.worker.methods.parameter_server.transport.connection import Connection, Gone
from testbed.worker.methods.parameter_server.transport.frame_errors import Refusal, Refused
from testbed.worker.methods.parameter_server.transport.frame_parser import (
    Expected,
    Header,
    parse,
    read_body,
    read_header,
)
from testbed.worker.methods.parameter_server.transport.frames import (
    HEADER_BYTES,
    MAX_TEXT_BYTES,
    Buffer,
    Frame,
    Kind,
    frame_bytes,
)

Key = TypeVar("Key")
Done = TypeVar("Done")
_CHECKS_A_WINDOW = 4
_FAREWELLS = (Kind.REFUSAL, Kind.BYE)


@dataclass(frozen=True, kw_only=True)
class Pace:
    """The least that must move once a frame is under way, so that a trickle does not hold up a round."""

    least_bytes_s: float
    window_s: float
    """Wall seconds over which it is taken; longer than any pause of a link in use."""

    def __post_init__(self) -> None:
        raise_all(
            number("least_bytes_s", self.least_bytes_s, least=0, below=float("inf")),
            number("window_s", self.window_s, above=0, below=float("inf")),
        )


NO_PACE = Pace(least_bytes_s=0.0, window_s=60.0)
"""Links are as slow as a run asks for; who is late is told by the deadline."""


class Transfer(ABC, Generic[Done]):
    """One frame over one connection."""

    event: int
    """Of `selectors`, that lets it go on."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.moved_bytes = 0
        self._window_start: tuple[float, int] | None = None

    @abstractmethod
    def step(self) -> Done | None:
        """Move what can be moved now; None: there is more to come.

        Raises:
            Refused: what came cannot be taken.
            Gone: nothing more will move.
        """

    @abstractmethod
    def refuse(self, refused: Refused) -> None:
        """End it and its connection."""

    @abstractmethod
    def expire(self) -> None:
        """
        Raises:
            Refused: it has not ended by the deadline.
        """

    @property
    @abstractmethod
    def under_way(self) -> bool:
        """Whether it is held to a pace."""

    def check_pace(self, clock_s: float, pace: Pace) -> None:
        """
        Args:
            clock_s: seconds in which it could have moved.

        Raises:
            Refused: over a whole window it did not move as it must.
            Gone: its connection was closed at this end.
        """
        if self.connection.closed:
            raise self.connection.gone("it was closed at this end")
        if not self.under_way:
            return
        if self._window_start is None:
            self._window_start = clock_s, self.moved_bytes
        since_s, moved_bytes = self._window_start
        if (passed_s := clock_s - since_s) < pace.window_s:
            return
        rate = (self.moved_bytes - moved_bytes) / passed_s
        if rate < pace.least_bytes_s:
            raise Refused(Refusal.SLOW, found=f"{rate:.0f} bytes/s", asked=f"{pace.least_bytes_s:.0f} bytes/s")
        self._window_start = clock_s, self.moved_bytes


class Receiving(Transfer[Frame]):
    """Never takes a byte behind the frame: the next one stays with the kernel. One buffer, of the announced length."""

    event = selectors.EVENT_READ

    def __init__(self, connection: Connection, expected: Expected) -> None:
        super().__init__(connection)
        self.expected = expected if connection.peer is None else expected.only(connection.peer)
        self._header: Header | None = None
        self._view = memoryview(bytearray(HEADER_BYTES))
        self._filled = 0

    def step(self) -> Frame | None:
        self._fill()
        if self._header is None:
            if self._filled < HEADER_BYTES:
                return None
            self._header = read_header(self._view, self.expected)
            self._view, self._filled = memoryview(bytearray(self._header.body_bytes)), 0
            self._fill()
        if self._filled < len(self._view):
            return None
        frame = read_body(self._header, self._view, self.expected)
        if frame.kind in _FAREWELLS:
            raise _farewell(frame, self.connection)
        return frame

    def _fill(self) -> None:
        count = self.connection.read(self._view[self._filled :])
        self._filled += count
        self.moved_bytes += count

    def refuse(self, refused: Refused) -> None:
        self.connection.refuse(refused, self.expected)

    def expire(self) -> None:
        whole = "a frame" if self._header is None else f"{HEADER_BYTES + self._header.body_bytes} bytes"
        raise Refused(Refusal.LATE, found=f"{self.moved_bytes} bytes", asked=whole)

    @property
    def under_way(self) -> bool:
        return self.moved_bytes > 0


class Sending(Transfer[int]):
    """Done once the kernel has taken all of it, which is not to say that it has arrived."""

    event = selectors.EVENT_WRITE
    under_way = True

    def __init__(self, connection: Connection, pieces: Sequence[Buffer], expected: Expected | None = None) -> None:
        """
        Args:
            pieces: of `Frame.pack`; not copied.
            expected: what a refusal of the other end is held to, if it may give one before it closes.
        """
        super().__init__(connection)
        self._views = [memoryview(piece) for piece in pieces if len(piece)]
        self._expected = expected
        self._next = 0
        self._size_bytes = sum(len(view) for view in self._views)

    def step(self) -> int | None:
        try:
            count = self.connection.write(self._views[self._next :])
        except Gone as error:
            raise self._closing_reason() or error from None
        self.moved_bytes += count
        while count and count >= len(self._views[self._next]):
            count -= len(self._views[self._next])
            self._next += 1
        if count:
            self._views[self._next] = self._views[self._next][count:]
        return self.moved_bytes if self._next == len(self._views) else None

    def refuse(self, refused: Refused) -> None:
        self.connection.close()  # half a frame is under way, into which nothing can be said

    def expire(self) -> None:
        raise Refused(Refusal.LATE, found=f"{self.moved_bytes} bytes", asked=f"{self._size_bytes} bytes")

    def _closing_reason(self) -> Gone | None:
        """What the other end said before it closed; a reset leaves it to be read."""
        if self._expected is None:
            return None
        view = memoryview(bytearray(frame_bytes(0, MAX_TEXT_BYTES)))
        try:
            frame = parse(view[: self.connection.read(view)], self._expected)
        except (Gone, Refused):
            return None
        return _farewell(frame, self.connection) if frame.kind in _FAREWELLS else None


def drive(
    transfers: Mapping[Key, Transfer[Done]],
    *,
    deadline_s: float,
    pace: Pace,
) -> Iterator[tuple[Key, Done | Refused | Gone]]:
    """Each transfer's end, in the order in which they end; then all have ended.

    The connection of what does not end well is closed, as are all that are under way where the caller stops asking.

    Args:
        deadline_s: of `time.monotonic`; what has not ended by then is refused. It is put off by the time that the
            caller takes for what has ended, in which nothing could move.
    """
    waiting = {key: transfer for key, transfer in transfers.items() if not transfer.connection.closed}
    try:
        for key in transfers.keys() - waiting.keys():
            yield key, transfers[key].connection.gone("it was closed at this end")
        with selectors.DefaultSelector() as selector:
            for key, transfer in waiting.items():
                selector.register(transfer.connection.socket, transfer.event, key)
            yield from _turns(selector, waiting, deadline_s, pace)
    finally:
        for transfer in waiting.values():
            transfer.connection.close()


def _turns(
    selector: selectors.BaseSelector,
    waiting: dict[Key, Transfer[Done]],
    deadline_s: float,
    pace: Pace,
) -> Iterator[tuple[Key, Done | Refused | Gone]]:
    away_s = 0.0  # in the caller's hands, while nothing could move
    check_s = time.monotonic()
    while waiting:
        now_s = time.monotonic()
        ready = selector.select(max(0.0, min(deadline_s + away_s, check_s) - now_s))
        todo: list[tuple[Key, Callable[[], Done | None]]] = [(item.data, waiting[item.data].step) for item, _ in ready]
        if now_s >= check_s:
            todo += [(key, partial(one.check_pace, now_s - away_s, pace)) for key, one in waiting.items()]
            check_s = time.monotonic() + pace.window_s / _CHECKS_A_WINDOW
        if now_s >= deadline_s + away_s:
            todo += [(key, one.expire) for key, one in waiting.items()]
        for key, move in todo:
            if key in waiting and (end := attempt(waiting[key], move)) is not None:
                selector.unregister(waiting.pop(key).connection.socket)
                left_s = time.monotonic()
                yield key, end
                away_s += time.monotonic() - left_s


def attempt(transfer: Transfer[Done], move: Callable[[], Done | None]) -> Done | Refused | Gone | None:
    """How `transfer` ends, if `move`, one of its methods, ends it; its connection is closed unless it ends well."""
    try:
        return move()
    except Refused as refused:
        transfer.refuse(refused)
        return refused.with_traceback(None)  # which would hold buffers
    except Gone as gone:
        transfer.connection.close()
        return gone.with_traceback(None)


def _farewell(frame: Frame, connection: Connection) -> Gone:
    said = printable(frame.text) or frame.kind.name.lower()
    return Gone(f"{connection.name} closed: {said}", reason=frame.reason, bye=frame.kind is Kind.BYE)
