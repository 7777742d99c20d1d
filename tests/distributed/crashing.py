"""A parameter server whose clients go wrong in the ways that tests ask for, each at a place of its own."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from testbed.worker.server.client import Client
from testbed.worker.server.connection import Connection
from testbed.worker.server.tensors import Coder
from testbed.worker.server.wire import Wire
from testbed.worker.strategies.parameter_server import ParameterServer

DIES, STALE, WAITS = 2, 3, 1
"""Ranks: is killed in the midst of an upload; sends yesterday's round; waits until the first is back."""
DEATH, YESTERDAY, PAUSE = 1, 1, 3
"""The rounds in which they do so."""
_BACK = Path("back")
"""In the directory in which all ranks run."""


class Crashing(ParameterServer):
    def _end(self, round_: int) -> None:
        rank, is_back = self._context.rank, self._context.comm.is_back
        if rank == DIES and round_ == DEATH and not is_back:
            Connection.write = _half_and_die  # type: ignore[method-assign]
        if rank == WAITS and round_ == PAUSE:
            while not _BACK.exists():
                time.sleep(0.02)
        super()._end(round_ - 1 if rank == STALE and round_ == YESTERDAY else round_)

    def _join(self, wire: Wire, coders: Mapping[str, Coder], port: int) -> Client:
        client = super()._join(wire, coders, port)
        if self._context.comm.is_back:
            _BACK.touch()  # its hello is on its way, which is all that the server looks for
        return client


def _half_and_die(self: Connection, views: Sequence[memoryview]) -> int:
    """The header is there, and half of the largest tensor."""
    largest = max(views, key=len)
    first = list(views).index(largest)
    self.socket.setblocking(True)
    self.socket.sendall(b"".join([*views[:first], largest[: len(largest) // 2]]))
    os.kill(os.getpid(), signal.SIGKILL)
    return 0
