"""Peers in one process: a thread for each rank, a queue for each pair. A message is copied when it is received."""

from __future__ import annotations

import queue
import threading
from collections import Counter, defaultdict
from collections.abc import Callable
from typing import Any

from torch import Tensor

LIMIT_S = 100.0
Queues = dict[tuple[int, int], "queue.SimpleQueue[Tensor]"]


class _Receiving:
    def __init__(self, messages: queue.SimpleQueue[Tensor], tensor: Tensor) -> None:
        self._messages, self._tensor = messages, tensor

    def wait(self) -> None:
        message = self._messages.get(timeout=LIMIT_S)
        assert message.shape == self._tensor.shape and message.dtype == self._tensor.dtype
        self._tensor.copy_(message)


class _Sent:
    def wait(self) -> None:
        pass


class MemoryPeers:
    def __init__(self, rank: int, world_size: int, queues: Queues) -> None:
        self.index, self.size = rank, world_size
        self._queues = queues
        self.sent = Counter[int]()
        """Bytes to each rank."""

    def send(self, to: int, tensor: Tensor) -> _Sent:
        assert to != self.index
        if tensor.numel():
            self.sent[to] += tensor.nbytes
            self._queues[self.index, to].put(tensor.clone())
        return _Sent()

    def receive(self, source: int, tensor: Tensor) -> Any:
        assert source != self.index
        return _Receiving(self._queues[source, self.index], tensor) if tensor.numel() else _Sent()


def on_all(world_size: int, collective: Callable[[MemoryPeers], Any]) -> tuple[list[Any], list[Counter[int]]]:
    """What `collective` returns on each rank, and what each sent to each other.

    Raises:
        AssertionError: a rank failed, or messages were left over.
    """
    queues: Queues = defaultdict(queue.SimpleQueue)
    for pair in ((a, b) for a in range(world_size) for b in range(world_size)):
        queues[pair]  # made here: threads would make the same one twice
    peers = [MemoryPeers(rank, world_size, queues) for rank in range(world_size)]
    results: list[Any] = [None] * world_size
    errors: list[BaseException] = []

    def run(rank: int) -> None:
        try:
            results[rank] = collective(peers[rank])
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(rank,), daemon=True) for rank in range(world_size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(2 * LIMIT_S)
    assert not errors, errors
    assert not any(thread.is_alive() for thread in threads)
    assert all(messages.empty() for messages in queues.values())
    return results, [peer.sent for peer in peers]
