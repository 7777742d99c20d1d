"""Delay on NFQUEUE: every packet that a middle node forwards waits in a delay-line process of ours.

Trust: RTT within 0.1 to 0.3 ms at p50 and p99 up to 1 Gbit/s with super-packets passing whole, also with more busy
processes than cores, as long as the process runs with real-time priority (see docs/decisions/0004).
"""

from __future__ import annotations

import dataclasses
import json
import os
import queue
import subprocess
import sys
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from testbed.core.errors import RunError
from testbed.core.record.events.network import DelayLine
from testbed.core.spec.link_profile import LinkProfile
from testbed.orchestrator.emulation.kernel import tc
from testbed.orchestrator.emulation.kernel.namespaces import Namespace
from testbed.orchestrator.emulation.shapers.shaper import Hop, Key, Report, Shaper

_START_TIMEOUT_S = 30.0
_ANSWER_TIMEOUT_S = 10.0
_RULES_AT_ONCE = 4
_NO_NETWORK = "0.0.0.0/32"


class _DelayLine:
    """One delay-line process and the directions it holds."""

    def __init__(self, hops: Sequence[Hop], numbers: dict[Key, int], report: Report) -> None:
        self.hops = hops
        self._report = report
        self._answers: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
        self.process = subprocess.Popen(
            [sys.executable, "-m", "testbed.orchestrator.emulation.shapers.delay_line"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            bufsize=1,
            start_new_session=True,
            env=os.environ,
        )
        self._say({"hops": [_config(hop, numbers[hop.key]) for hop in hops]})
        threading.Thread(target=self._relay, name="delay-line", daemon=True).start()

    def wait_until_ready(self) -> dict[str, Any]:
        return self._answer(_START_TIMEOUT_S, "was ready")

    def ask(self, message: dict[str, Any]) -> dict[str, Any]:
        self._say(message)
        return self._answer(_ANSWER_TIMEOUT_S, "answered")

    def _say(self, message: dict[str, Any]) -> None:
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(json.dumps(message) + "\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            raise RunError(f"link {self.hops[0].link}: its delay line ended; logs/orchestrator.log says why") from None

    def _answer(self, timeout_s: float, what: str) -> dict[str, Any]:
        try:
            answer = self._answers.get(timeout=timeout_s)
        except queue.Empty:
            answer = {"event": "end"}
        if answer["event"] == "end":
            raise RunError(
                f"link {self.hops[0].link}: the delay line ended before it {what}; logs/orchestrator.log says why"
            )
        return answer

    def _relay(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            message = json.loads(line)
            if message["event"] == "delay_line":
                self._report(DelayLine.from_json(message).to_json())
            else:
                self._answers.put(message)
        self._answers.put({"event": "end"})

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


class NfqueueShaper(Shaper):
    """Directions are spread over as many delay-line processes as there are cores, both of a link in the same."""

    name = "nfqueue"

    def __init__(self, hops: Sequence[Hop], report: Report) -> None:
        super().__init__(hops, report)
        self._lines: list[_DelayLine] = []
        self._line_of: dict[Key, _DelayLine] = {}
        self._in_force: dict[Key, dict[str, Any]] = {}
        self._numbers: dict[Key, int] = {}
        self._bound: set[Key] = set()

    def apply(self) -> None:
        by_middle: dict[Namespace, list[Hop]] = {}
        for hop in self.hops.values():
            by_middle.setdefault(hop.namespace, []).append(hop)
        for hops in by_middle.values():
            self._numbers.update({hop.key: number for number, hop in enumerate(hops)})
        groups: list[list[Hop]] = [[] for _ in range(min(len(by_middle), os.cpu_count() or 1))]
        for index, hops in enumerate(by_middle.values()):
            groups[index % len(groups)] += hops
        self._lines = [_DelayLine(group, self._numbers, self.report) for group in groups]
        with ThreadPoolExecutor(_RULES_AT_ONCE) as pool:  # while the delay lines start
            list(pool.map(self._add_rules, by_middle.values()))
        for line in self._lines:
            ready = line.wait_until_ready()
            for hop, found in zip(line.hops, ready["hops"], strict=True):
                self._line_of[hop.key] = line
                self._in_force[hop.key] = {**found, "priority": ready["priority"]}
        for hop in self.hops.values():
            self.verify(hop.key, hop.profile, hop.limit_packets)

    def _add_rules(self, hops: list[Hop]) -> None:
        """Both rules of a middle node in one process; what the kernel then lists is what counts."""
        namespace = hops[0].namespace
        rules = {
            hop.key: f"-A FORWARD -i {hop.arrives_on} -j NFQUEUE --queue-num {self._numbers[hop.key]}" for hop in hops
        }
        namespace.command(["iptables-restore", "-n", "-w", "5"], "\n".join(["*mangle", *rules.values(), "COMMIT", ""]))
        listed = namespace.command(["iptables", "-t", "mangle", "-S", "FORWARD"])
        self._bound |= {key for key, rule in rules.items() if rule in listed}

    def read_back(self) -> dict[Key, dict[str, Any]]:
        """What the delay lines say they do, for each direction whose rule the kernel confirms."""
        return {
            key: {"shaper": self.name, "seeded": True, **found}
            for key, found in self._in_force.items()
            if key in self._bound
        }

    def change(self, key: Key, profile: LinkProfile, limit_packets: int) -> None:
        link, source = key
        asked = {
            "profile": dataclasses.asdict(profile),
            "limit_packets": limit_packets,
            "burst_s": _burst_s(profile, self.hops[key].dilation),
        }
        answer = self._line_of[key].ask({"do": "set", "link": link, "source": source, **asked})
        self._in_force[key] = {**self._in_force[key], **answer["found"]}
        self.verify(key, profile, limit_packets)

    def set_down(self, key: Key, down: bool) -> None:
        link, source = key
        self._line_of[key].ask({"do": "down" if down else "up", "link": link, "source": source})

    def clear(self) -> None:
        for line in self._lines:
            line.kill()
        self._lines = []

    @property
    def failure(self) -> str | None:
        for line in self._lines:
            if line.process.poll() is not None:
                return f"link {line.hops[0].link}: its delay line ended; logs/orchestrator.log says why"
        return None


def _config(hop: Hop, number: int) -> dict[str, Any]:
    return {
        "link": hop.link,
        "source": hop.source,
        "target": hop.target,
        "namespace": hop.namespace.path,
        "number": number,
        "profile": dataclasses.asdict(hop.profile),
        "limit_packets": hop.limit_packets,
        "near": str(hop.near or _NO_NETWORK),
        "burst_s": _burst_s(hop.profile, hop.dilation),
        "seed": hop.seed,
    }


def _burst_s(profile: LinkProfile, dilation: float) -> float:
    """Time of what the bucket lets pass at once beyond the rate; none of a bucket that was asked for."""
    if profile.burst_bytes:
        return 0.0
    return 8 * tc.rate_settings(profile, 0.0, dilation).burst_bytes / profile.rate_bit_s
