"""A parameter server whose clients go wrong in the ways that tests ask for, each at a place of its own."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Sequence
from pathlib import Path

from testbed.worker.interfaces.strategy import WorkerContext
from testbed.worker.methods.parameter_server.client import Client
from testbed.worker.methods.parameter_server.transport.connection import Connection
from testbed.worker.strategies.parameter_server import ParameterServer

DIES, STALE, WAITS = 2, 3, 1
"""Ranks: is killed in the midst of an upload; sends yesterday's round; waits until the first is back."""
DEATH, YESTERDAY, PAUSE = 1, 1, 3
"""The rounds in which they do so."""
_BACK = Path("back")
"""In the directory in which all ranks run."""


class Crashing(ParameterServer):
    dies, stale, waits = DIES, STALE, WAITS

    def bind(self, context: WorkerContext) -> None:
        super().bind(context)
        if self._client is None:
            return
        rank, is_back = context.rank, context.comm.is_back
        self._client.end = _going_wrong(self, self._client, rank, is_back)  # type: ignore[method-assign]
        if is_back:
            _BACK.touch()  # its hello is on its way, which is all that the server looks for


class CrashingInRegion(Crashing):
    """Of two regions of two and three workers: a client of the second one's server dies."""

    dies, stale, waits = 4, -1, 1


def _going_wrong(who: Crashing, client: Client, rank: int, is_back: bool):  # type: ignore[no-untyped-def]
    end = client.end

    def wrongly(round_: int) -> None:
        if rank == who.dies and round_ == DEATH and not is_back:
            Connection.write = _half_and_die  # type: ignore[method-assign]
        if rank == who.waits and round_ == PAUSE:
            while not _BACK.exists():
                time.sleep(0.02)
        end(round_ - 1 if rank == who.stale and round_ == YESTERDAY else round_)

    return wrongly


def _half_and_die(self: Connection, views: Sequence[memoryview]) -> int:
    """The header is there, and half of the largest tensor."""
    largest = max(views, key=len)
    first = list(views).index(largest)
    self.socket.setblocking(True)
    self.socket.sendall(b"".join([*views[:first], largest[: len(largest) // 2]]))
    os.kill(os.getpid(), signal.SIGKILL)
    return 0
