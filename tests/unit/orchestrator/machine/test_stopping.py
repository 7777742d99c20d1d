"""A signal ends a run at once, or where it is heeded: never in the midst of what must not be left half done."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import pytest

from testbed.core.errors import Interrupted
from testbed.orchestrator.machine.signals import Stop


@pytest.fixture
def stop() -> Iterator[Stop]:
    with Stop(at_once=True) as made:
        yield made


def test_outside_it_is_raised_at_once_and_only_once(stop: Stop) -> None:
    with pytest.raises(Interrupted, match="stopped by SIGTERM"):
        os.kill(os.getpid(), signal.SIGTERM)
    os.kill(os.getpid(), signal.SIGINT)
    assert stop.signals == [signal.SIGTERM]


@pytest.mark.parametrize("number", Stop.NUMBERS)
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
