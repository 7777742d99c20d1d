"""Rings, message by message, for all ranks at once: one iteration of gloo's loop is one step here."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque

import numpy as np

from testbed.analysis.simulator.model.network import Hops, Indices, Network, Times
from testbed.analysis.simulator.model.traffic import IN_FLIGHT

RECEIVES_AHEAD = 8
"""That the testbed's own algorithms post before they wait for the first (`testbed.worker.communication.transport`)."""


class UnderWay(ABC):
    """A collective that has begun."""

    is_done = False

    @property
    @abstractmethod
    def now_s(self) -> float:
        """When it goes on, on average over ranks."""

    @abstractmethod
    def advance(self) -> None:
        """Follow it a little further."""

    @abstractmethod
    def end_s(self) -> Times:
        """When each rank has its result, once done."""


class Ring(UnderWay):
    """gloo's: `phases` times `messages` messages of every rank to its neighbour.

    A message leaves once the sender has what it passes on, and the receiver has said that there is room for it; both
    take turns with two halves, so that one is on its way while the other is worked on.
    """

    in_flight = IN_FLIGHT
    """Messages that a rank has begun and does not pass on yet."""

    def __init__(
        self,
        network: Network,
        begin_s: Times,
        towards: int,
        phases: int,
        messages: int,
        size: float,
        host_s: float = 0.0,
    ) -> None:
        """Begin.

        Args:
            host_s: Time of a rank's thread for each message that has come.
        """
        self._message_s, self._host_s = network.message_s, host_s
        self._hops: Hops = network.hops(towards)
        self._network, self._size = network, size
        self._round_bytes = self._in_a_round_trip(messages) * size
        self._hops.begin(self._round_bytes)
        self._phases, self._messages = phases, messages
        self._now, self._mean_s = begin_s.copy(), float(begin_s.mean())
        self._received = [begin_s.copy() for _ in range(self.in_flight)]
        self._sent = [begin_s.copy() for _ in range(self.in_flight)]
        self._index = 0

    @property
    def now_s(self) -> float:
        return self._mean_s

    def advance(self) -> None:
        half, hops, network = self._index % self.in_flight, self._hops, self._network
        said_s = hops.at_sender(self._has_room_s())
        asked_s = said_s + self._behind_s(said_s) + hops.back_s
        leaves_s = np.maximum.reduce([self._now, asked_s, network.free_s[hops.slowest]])
        carried_s, paced_s = self._size * hops.second_byte, hops.paced_s(self._size, network.paced)
        left_s = leaves_s + np.maximum(carried_s, paced_s)
        # what BBR holds back waits at its sender, in nobody's way but its own connection's
        queued_s = left_s if network.size == 2 else np.where(paced_s > carried_s, leaves_s, left_s)
        network.carry(hops.slowest, leaves_s, left_s, queued_s)
        self._sent[half] = leaves_s
        self._received[half] = hops.at_receiver(left_s + hops.delay_s) + self._message_s
        self._index += 1
        self._go_on()

    @property
    def links(self) -> Indices:
        """The slowest of each hop."""
        return self._hops.slowest

    @property
    def messages_left(self) -> int:
        """Of this phase."""
        return self._messages - self._index

    def times(self) -> list[Times]:
        """All that it goes on from."""
        return [self._now, *self._received, *self._sent]

    def move(self, messages: int, shift_s: float) -> None:
        """Leave out an even number of messages, which took `shift_s`."""
        self._index += messages
        self._now = self._now + shift_s
        self._received = [times + shift_s for times in self._received]
        self._sent = [times + shift_s for times in self._sent]
        self._mean_s += shift_s

    def _in_a_round_trip(self, messages: int) -> float:
        """How many messages leave a rank."""
        return min(IN_FLIGHT, messages)

    def _has_room_s(self) -> Times:
        """When each rank says that there is room for the message that comes to it next."""
        return self._now

    def _behind_s(self, said_s: Times) -> Times:
        """What notices wait behind bytes that go their way: of two ranks on the same connection, else on a link."""
        return self._network.behind_s(self._hops.slowest_back, said_s)

    def _go_on(self) -> None:
        """To when each rank can begin its next message, or its next phase."""
        if self._index >= self.in_flight:
            self._pass_on(self._index % self.in_flight)
        if self._index == self._messages:
            for index in range(self._index + 1, self._index + self.in_flight):
                self._pass_on(index % self.in_flight)
            self._index, self._phases = 0, self._phases - 1
            self.is_done = self._phases == 0
            if self.is_done:
                self._hops.end(self._round_bytes)
        self._mean_s = float(self._now.mean())

    def _pass_on(self, half: int) -> None:
        """Have done with the message in that half; one thread does so for one after another."""
        self._now = np.maximum(np.maximum(self._now, self._received[half]) + self._host_s, self._sent[half])

    def end_s(self) -> Times:
        return self._now


class RingOfOurs(Ring):
    """The testbed's own: what a rank sends is what has just come to it, and receives are posted ahead."""

    in_flight = 1

    def __init__(self, network: Network, begin_s: Times, messages: int, size: float) -> None:
        super().__init__(network, begin_s, 1, 1, messages, size)
        self._room_s = deque([begin_s.copy()] * RECEIVES_AHEAD)
        """When each rank says that there is room, for the next messages."""

    def times(self) -> list[Times]:
        return [*super().times(), *self._room_s]

    def move(self, messages: int, shift_s: float) -> None:
        super().move(messages, shift_s)
        self._room_s = deque(times + shift_s for times in self._room_s)

    def _in_a_round_trip(self, messages: int) -> float:
        """All pass on as many as there are hops while one goes round."""
        hops = self._hops
        if not hops.delay_s.any():
            return super()._in_a_round_trip(messages)
        return float(min(messages, RECEIVES_AHEAD, (hops.delay_s + hops.back_s).max() / hops.delay_s.mean()))

    def _has_room_s(self) -> Times:
        return self._room_s[0]

    def _go_on(self) -> None:
        super()._go_on()
        self._room_s.popleft()
        self._room_s.append(self._now)
