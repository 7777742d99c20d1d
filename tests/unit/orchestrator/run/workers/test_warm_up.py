"""Links are measured beside the workers' warm-up; where they are not filled, others start at a larger dilation."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from types import SimpleNamespace
from typing import Any, cast

import pytest

from testbed.core.errors import RunError
from testbed.orchestrator.emulation.measuring.prober import LinksNotFilled
from testbed.orchestrator.run.links.measured_network import MeasuredNetwork
from testbed.orchestrator.run.workers import warm_up
from testbed.orchestrator.run.workers.workers import Workers


class Run:
    """Links that are filled from `fills_at` on, and workers that are warm at once; keeps what happened."""

    def __init__(self, fills_at: float, fault: Exception | None = None) -> None:
        self.fills_at, self.fault = fills_at, fault
        self.dilation = 1.0
        self.happened: list[str] = []
        self.orders: list[str] = []

    @contextmanager
    def start(self) -> Iterator[Workers]:
        warm = iter([("node0", {"event": "warm"})] * 2)
        name = f"workers at {self.dilation:g}"
        self.happened.append(name)
        workers = SimpleNamespace(nodes=["node0"], next_message=lambda: next(warm), order=self.order, name=name)
        yield cast(Workers, workers)
        self.happened.append(f"end of {name}")

    def order(self, event: str, nodes: list[str]) -> None:
        assert nodes == ["node0"]
        self.orders.append(event)

    def measure_busy(self) -> Any:
        if self.fault is not None:
            raise self.fault
        if self.dilation < self.fills_at:
            raise LinksNotFilled("link a-b: too slow")
        return SimpleNamespace(tries=1)

    def slow_down(self) -> None:
        self.dilation *= 2

    def warm(self, stack: ExitStack) -> Workers:
        def retime(dilation: float) -> None:
            self.happened.append(f"run at {dilation:g}")

        links = cast(MeasuredNetwork, self)
        return warm_up.beside_filled_links(stack, links, self.start, retime, lambda what, text: None, 1)


def test_filled_links_keep_their_dilation_and_workers() -> None:
    run = Run(fills_at=1.0)
    with ExitStack() as stack:
        run.warm(stack)
        assert run.happened == ["workers at 1"]
        assert run.orders == ["busy", "rest"]
    assert run.happened == ["workers at 1", "end of workers at 1"]


def test_workers_of_a_dilation_at_which_links_are_not_filled_end_before_others_start() -> None:
    run = Run(fills_at=4.0)
    with ExitStack() as stack:
        workers = run.warm(stack)
        assert run.happened == [
            *("workers at 1", "end of workers at 1", "run at 2"),
            *("workers at 2", "end of workers at 2", "run at 4"),
            "workers at 4",
        ]
    assert cast(Any, workers).name == "workers at 4"


def test_another_fault_ends_the_run() -> None:
    run = Run(fills_at=4.0, fault=RunError("the probe process ended"))
    with ExitStack() as stack, pytest.raises(RunError, match="probe process"):
        run.warm(stack)
