"""A run's workers from their start until they may be told to begin, and its links beside them."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from contextlib import AbstractContextManager, ExitStack

from testbed.core.errors import RunError
from testbed.orchestrator.emulation.measuring.prober import LinksNotFilled
from testbed.orchestrator.run.links.measured_network import MeasuredNetwork
from testbed.orchestrator.run.workers.workers import Workers

START_TIMEOUT_S = 180.0
"""From the containers' start to the last worker's connection to all its peers."""


def until_warm(workers: Workers, nodes: Collection[str]) -> None:
    """Wait until the workers of these nodes are connected to all peers, or have come to rest.

    Raises:
        RunError: one is not after `START_TIMEOUT_S`.
    """
    warm: set[str] = set()
    deadline_s = time.monotonic() + START_TIMEOUT_S
    while len(warm) < len(nodes):
        if time.monotonic() > deadline_s:
            missing = ", ".join(node for node in nodes if node not in warm)
            raise RunError(
                f"{missing}: not connected to all peers within {START_TIMEOUT_S:.0f} s; see logs/. On a busy machine,"
                " use fewer workers or a larger dilation"
            )
        received = workers.next_message()
        if received is not None and received[1]["event"] == "warm":
            warm.add(received[0])


def beside_filled_links(
    stack: ExitStack,
    links: MeasuredNetwork,
    start: Callable[[], AbstractContextManager[Workers]],
    retime: Callable[[float], None],
    stage: Callable[[str, str], None],
    busy: int,
) -> Workers:
    """Return the workers of a training, once links have their rates beside their warm-up.

    Until then others are started in their place, each time slower.

    Args:
        stack: ends what `start` returns.
        start: makes workers of the run's spec as it is then.
        retime: tells the run of a dilation.
        stage: says what was done, in words.
        busy: Number of workers that compute while links are measured.
    """
    while True:
        with ExitStack() as own:
            workers = own.enter_context(start())
            stage("workers", f"workers: {len(workers.nodes)} containers started")
            until_warm(workers, workers.nodes)
            computing = workers.nodes[:: max(1, len(workers.nodes) // busy)]
            workers.order("busy", computing)
            stage("busy", "workers connected: links measured again during their warm-up")
            try:
                tries = links.measure_busy().tries
            except LinksNotFilled as error:
                missing = str(error)
            else:
                if tries > 1:
                    stage("busy", f"links measured {tries} times: some were not as asked at first")
                workers.order("rest", computing)  # the step that a crowd of them is in may take a second
                until_warm(workers, computing)
                stack.enter_context(own.pop_all())
                return workers
        links.slow_down()
        retime(links.dilation)
        stage("busy", f"begun again at dilation {links.dilation:g}: {missing}")
