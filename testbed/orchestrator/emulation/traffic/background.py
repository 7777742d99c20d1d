"""Background traffic of a run: starts and ends the process that makes it, and tells how much of a link was its."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from testbed.core.errors import RunError
from testbed.core.record.events import network as events
from testbed.core.spec.schedule import Background
from testbed.orchestrator.emulation.links.network import Network
from testbed.orchestrator.emulation.shapers.shaper import Report

_ANSWER_TIMEOUT_S = 10.0
_ENDED = (
    "the background traffic process ended or did not answer within"
    f" {_ANSWER_TIMEOUT_S:.0f} s: links no longer carry what was asked; logs/orchestrator.log says why"
)
Direction = tuple[str, str]
"""A link's name, and the end at which the direction begins."""


class BackgroundTraffic:
    """The traffic of others on WAN links. A context manager; without `backgrounds` it does nothing.

    What a direction carries of it is counted where it arrives: there the queue's drops no longer count, and what the
    shaper loses or doubles on purpose is taken out again by its ratio. So the count lags behind the queue's by what is
    in flight, and lacks what a link lost while it was down.
    """

    def __init__(self, network: Network, backgrounds: Sequence[Background], dilation: float, report: Report) -> None:
        self._network = network
        self._backgrounds = backgrounds
        self._dilation = dilation
        self._report = report
        self._process: subprocess.Popen[str] | None = None
        self._arrived_bytes: dict[tuple[Direction, Direction], int] = defaultdict(int)
        self._left_bytes: dict[tuple[Direction, Direction], float] = defaultdict(float)

    def __enter__(self) -> BackgroundTraffic:
        if self._backgrounds:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "testbed.orchestrator.emulation.traffic.generator"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                bufsize=1,
                start_new_session=True,
                env=os.environ,
            )
            try:
                self._say(
                    {
                        "congestion_control": self._network.tcp.kernel_name,
                        "dilation": self._dilation,
                        "directions": [self._direction(traffic) for traffic in self._backgrounds],
                    }
                )
                self._answer("ready")
            except BaseException:
                self.__exit__()
                raise
        return self

    def __exit__(self, *_: object) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def _direction(self, traffic: Background) -> dict[str, Any]:
        port = self._network.port(traffic.link, traffic.source)
        addresses = self._network.plan.wan[traffic.link]
        near, far = addresses.a_side.near, addresses.b_side.near
        return {
            "traffic": asdict(traffic),
            "to": port.target,
            "from_namespace": port.node.namespace.path,
            "from_address": str(near if port.source == port.link.a else far),
            "to_namespace": self._network.nodes[port.target].namespace.path,
            "to_address": str(far if port.source == port.link.a else near),
            "rate_bit_s": port.profile.rate_bit_s,
            "rtt_s": port.link.rtt_s,
        }

    @property
    def failure(self) -> str | None:
        """Why it can no longer do its part; None while it does."""
        return None if self._process is None or self._process.poll() is None else _ENDED

    def start(self, at_s: float) -> None:
        """Flows begin at this moment of the monotonic clock, that of step 1: a seed gives the same ones every time."""
        if self._process is not None:
            self._say({"do": "start", "at_s": at_s})

    def sample(self) -> None:
        """Count now, and report a `background` event of each direction. To be called each second."""
        if self._process is None:
            return
        self._say({"do": "count"})
        for event in self._answer("counted")[:-1]:
            link, source, target = event["name"], event["from"], event["to"]
            event["wire_bytes"] = self._left(event.pop("arrived_bytes"), (link, source), of=(link, source))
            event["ack_wire_bytes"] = self._left(event.pop("acknowledging_bytes"), (link, target), of=(link, source))
            self._report(events.Background.from_json(event).to_json())

    def _left(self, arrived_bytes: int, on: Direction, of: Direction) -> int:
        """What flows `of` one direction have put `on` a direction so far, from what of it has arrived.

        By increments, since a link's losses may change while a run goes on.
        """
        profile = self._network.port(*on).profile
        passed_ratio = (1 - profile.loss_ratio) * (1 + profile.duplicate_ratio)
        self._left_bytes[on, of] += (arrived_bytes - self._arrived_bytes[on, of]) / passed_ratio
        self._arrived_bytes[on, of] = arrived_bytes
        return round(self._left_bytes[on, of])

    def wire_bytes(self, link: str, source: str) -> int:
        """What background traffic put on the wire of a direction, acknowledgements of the other's flows included.

        As of the last `sample`; Ethernet headers included, as in a queue's counters.
        """
        return round(sum(left for (on, _), left in self._left_bytes.items() if on == (link, source)))

    def _say(self, message: dict[str, Any]) -> None:
        assert self._process is not None and self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(message) + "\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            raise RunError(_ENDED) from None

    def _answer(self, last: str) -> list[dict[str, Any]]:
        """Lines up to the one whose event is `last`."""
        assert self._process is not None and self._process.stdout is not None
        timer = threading.Timer(_ANSWER_TIMEOUT_S, self._process.kill)
        timer.start()
        answers: list[dict[str, Any]] = []
        try:
            for line in self._process.stdout:
                answers.append(json.loads(line))
                if answers[-1]["event"] == last:
                    return answers
        finally:
            timer.cancel()
        raise RunError(_ENDED)
