"""A signal ends a run at once, or where it is heeded: never in the midst of what must not be left half done."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import pytest

from testbed.core.errors import Interrupted
from testbed.orchestrator.machine.signals import RunStop as Stop

NUMBERS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@pytest.fixture
def stop() -> Iterator[Stop]:
    before = {number: signal.getsignal(number) for number in NUMBERS}
    made = Stop()
    made.watch()
    yield made
    for number, handler in before.items():
        signal.signal(number, handler)


def test_outside_it_is_raised_at_once_and_only_once(stop: Stop) -> None:
    with pytest.raises(Interrupted, match="stopped by SIGTERM"):
        os.kill(os.getpid(), signal.SIGTERM)
    os.kill(os.getpid(), signal.SIGINT)


@pytest.mark.parametrize("number", NUMBERS)
def test_where_it_is_noted_it_waits_until_it_is_heeded(stop: Stop, number: signal.Signals) -> None:
    done = []

    def work() -> None:
        with stop.noted():
            stop.heed()
            os.kill(os.getpid(), number)
            done.append("half")
            stop.heed()
            done.append("more")

    with pytest.raises(Interrupted, match=f"stopped by {number.name}"):
        work()
    assert done == ["half"]


def test_at_the_latest_it_is_raised_at_the_end(stop: Stop) -> None:
    with pytest.raises(Interrupted), stop.noted():
        os.kill(os.getpid(), signal.SIGTERM)
    with pytest.raises(KeyError), stop.noted():
        raise KeyError("what went wrong before goes first")
