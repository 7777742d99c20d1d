"""The rendezvous of a run's ranks: a bounded key-value service, kept outside of the nodes, with one socket a node.

Ranks find each other's addresses here, which takes a few hundred bytes for each pair, and take turns in their warm-up.
It is no way around the links: sizes, sums and rates are limited, every byte is counted, and the verdict judges what was
put down while training. A rank that ends leaves its values for those that come later.
"""

from __future__ import annotations

import string
import threading
import time
from collections import defaultdict
from dataclasses import dataclass
from typing import Any

from testbed.core.record.events.network import Rendezvous
from testbed.core.record.telemetry import Channel
from testbed.orchestrator.emulation.containers.log_pipe import RateLimit

MAX_NAME_CHARACTERS = 200
MAX_VALUE_BYTES = 1 << 18
NODE_BYTES, PAIR_BYTES = 1 << 18, 1 << 10
"""Names and values that one node may put down in a run: so many, and for each node more. gloo takes 180 a pair."""
REQUESTS_S = 2000.0
"""Requests of one node in a second, once it has made as many at once, and some for each node more."""
PAIR_REQUESTS = 8
TURN_REQUESTS_S = 10_000.0
"""Requests of one node for turns, which put nothing down: a rank that shares a device makes two in each phase."""
MAX_CONNECTIONS = 4
"""Largest number of connections of one node at once."""
MAX_TURNS = 64
OF_TURNS = ("turn", "over")
MAX_NUMBER = 2**53
WAIT_S = 1.0
"""Longest wait for a value or a turn; whoever has waited asks again."""
_HEX = set(string.hexdigits)
Answer = dict[str, Any]


class Refused(ValueError):
    """A request that is none, or beyond a limit."""


@dataclass
class _Counts:
    connections: int = 0
    requests: int = 0
    put_bytes: int = 0
    training_bytes: int = 0
    refused: int = 0


class RendezvousService:
    """The values that the nodes of one run have put down.

    Args:
        nodes: How many nodes there are.
    """

    def __init__(self, nodes: int) -> None:
        self._budget_bytes = NODE_BYTES + PAIR_BYTES * nodes
        self._burst_requests = REQUESTS_S + PAIR_REQUESTS * nodes
        self._changed = threading.Condition()
        self._values: dict[str, bytes] = {}
        self._turns: dict[int, list[Channel]] = defaultdict(list)
        """For each turn's number, the node that has it, then those that wait for it, first come first."""
        self._counts: dict[str, _Counts] = defaultdict(_Counts)
        self._has_begun = False

    def begin(self) -> None:
        """Training begins: what is put down from now on was not needed to meet."""
        self._has_begun = True

    def events(self) -> list[dict[str, Any]]:
        """Return what each node has put down, as events of the record."""
        with self._changed:
            counts = dict(self._counts)
        return [
            Rendezvous(
                node=node,
                requests=count.requests,
                put_bytes=count.put_bytes,
                training_bytes=count.training_bytes,
                refused=count.refused,
            ).to_json()
            for node, count in sorted(counts.items())
        ]

    def serve(self, node: str, channel: Channel) -> None:
        """Answer a node's requests on one connection, until it ends."""
        count = self._counts[node]
        with self._changed:
            if count.connections >= MAX_CONNECTIONS:
                channel.connection.close()
                return
            count.connections += 1
        limit = RateLimit(REQUESTS_S, self._burst_requests, time.monotonic())
        of_turns = RateLimit(TURN_REQUESTS_S, TURN_REQUESTS_S, time.monotonic())
        try:
            for request in channel.messages():
                channel.send(self._answer(count, channel, request))
                one = of_turns if request.get("do") in OF_TURNS else limit
                time.sleep(one.wait_s(1, time.monotonic()))
        except ValueError:  # no line of JSON
            count.refused += 1
        finally:
            channel.connection.close()
            with self._changed:
                count.connections -= 1
                for number in self._turns:
                    self._leave(channel, number)

    def _answer(self, count: _Counts, channel: Channel, request: dict[str, Any]) -> Answer:
        with self._changed:
            count.requests += 1
            try:
                return {"value": self._done(count, channel, request)}
            except Refused as error:
                count.refused += 1
                return {"refused": str(error)}

    def _done(self, count: _Counts, channel: Channel, request: dict[str, Any]) -> str | int | bool | None:
        what = request.get("do")
        if what in OF_TURNS:
            return self._turn(channel, _number(request, "number", 0, MAX_TURNS - 1), is_over=what == "over")
        name = request.get("name")
        if not isinstance(name, str) or not 0 < len(name) <= MAX_NAME_CHARACTERS or not name.isascii():
            raise Refused(f"name={name!r:.40}: must be a text of 1 to {MAX_NAME_CHARACTERS} ASCII characters")
        if what == "get":
            self._changed.wait_for(lambda: name in self._values, WAIT_S)
            value = self._values.get(name)
            return None if value is None else value.hex()
        if what == "put":
            self._put(count, name, _bytes(request))
            return None
        if what == "add":
            amount = _number(request, "amount", -MAX_NUMBER, MAX_NUMBER)
            try:
                total = int(self._values.get(name, b"0")) + amount
            except ValueError:
                raise Refused(f"{name}: its value is no number") from None
            self._put(count, name, str(total).encode())
            return total
        raise Refused(f"do={what!r:.40}: must be put, get, add, turn or over")

    def _put(self, count: _Counts, name: str, value: bytes) -> None:
        size_bytes = len(name) + len(value)
        if count.put_bytes + size_bytes > self._budget_bytes:
            raise Refused(
                f"a node may put down {self._budget_bytes} bytes in a run; ranks send each other data by links"
            )
        count.put_bytes += size_bytes
        count.training_bytes += size_bytes if self._has_begun else 0
        self._values[name] = value
        self._changed.notify_all()

    def _turn(self, channel: Channel, number: int, *, is_over: bool) -> bool:
        queue = self._turns[number]
        if is_over:
            self._leave(channel, number)
            return True
        if channel not in queue:
            queue.append(channel)  # and keeps its place there until it has the turn, however often it asks
        return self._changed.wait_for(lambda: queue[0] is channel, WAIT_S)

    def _leave(self, channel: Channel, number: int) -> None:
        if channel in self._turns[number]:
            self._turns[number].remove(channel)
            self._changed.notify_all()


def _number(request: dict[str, Any], key: str, least: int, most: int) -> int:
    value = request.get(key)
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        raise Refused(f"{key}={value!r:.40}: must be a whole number from {least} to {most}")
    return value


def _bytes(request: dict[str, Any]) -> bytes:
    value = request.get("value")
    if not isinstance(value, str) or len(value) > 2 * MAX_VALUE_BYTES or len(value) % 2 or not _HEX.issuperset(value):
        raise Refused(f"value: must be at most {MAX_VALUE_BYTES} bytes in hexadecimal digits")
    return bytes.fromhex(value)
