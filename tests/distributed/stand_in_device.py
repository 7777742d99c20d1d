"""`python -m testbed.worker run` on a node whose device is a stand-in: the processor's memory, and the wall's time.

What leaves it is copied and what arrives is put back, and it has turns and events, as with a device. On standard error
it says when its rank had the device.
"""

from __future__ import annotations

import json
import sys
import time

from testbed.worker.communication.rendezvous import Turn
from testbed.worker.device.accelerator import Accelerator
from testbed.worker.process import session
from testbed.worker.training.warm_up import TURNS


class Mark:
    """An event of a device that has done all that it was given: the processor does it at once."""

    def __init__(self) -> None:
        self.at_s = 0.0

    def record(self) -> None:
        self.at_s = time.monotonic()

    def synchronize(self) -> None:
        """There is nothing to wait for."""

    def elapsed_time(self, later: Mark, /) -> float:
        return 1000 * (later.at_s - self.at_s)


class StandIn(Accelerator):
    """The device of a node."""

    def event(self) -> Mark:
        return Mark()


take, give = Turn.take, Turn.give


def _told_take(turn: Turn) -> None:
    take(turn)
    _tell(turn, "take")


def _told_give(turn: Turn) -> None:
    _tell(turn, "give")
    give(turn)


def _tell(turn: Turn, what: str) -> None:
    if turn._number >= TURNS:  # others are of the warm-up
        sys.stderr.write(json.dumps({what: time.monotonic(), "number": turn._number - TURNS}) + "\n")


Accelerator.of_node = classmethod(lambda cls, kind: StandIn(stages=kind == "cuda"))  # type: ignore[method-assign, assignment]
Turn.take, Turn.give = _told_take, _told_give  # type: ignore[method-assign]
sys.exit(session.run())
