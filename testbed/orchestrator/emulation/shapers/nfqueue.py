"""Delay on NFQUEUE: every packet that a middle node forwards waits in a delay-line process of ours.

Trust: RTT within 0.1 to 0.3 ms at p50 and p99 up to 1 Gbit/s with super-packets passing whole, also with more busy
processes than cores, as long as the process runs with real-time priority (see docs/decisions/0004).
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from typing import Any

from testbed.core.errors import RunError
from testbed.orchestrator.emulation.node import run_in
from testbed.orchestrator.emulation.shapers.base import DelayShaper, Direction

_START_TIMEOUT_S = 20.0


class NfqueueShaper(DelayShaper):
    """One delay-line process for a middle node, one queue a direction."""

    process: subprocess.Popen[str] | None = None
    priority = "none"

    def apply(self) -> None:
        for number, direction in enumerate(self.directions):
            run_in(
                self.middle,
                f"iptables -w 5 -t mangle -A FORWARD -i {direction.arrives_on} -j NFQUEUE --queue-num {number}".split(),
            )
        config = {"directions": [_settings(number, d) for number, d in enumerate(self.directions)]}
        module = "testbed.orchestrator.emulation.shapers.delay_line"
        # not Node.popen: it detaches, so the process it returns would not be the delay line's
        self.process = subprocess.Popen(
            ["mnexec", "-a", str(self.middle.pid), sys.executable, "-m", module, json.dumps(config)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
            env=os.environ,
        )
        self._wait_until_ready()
        threading.Thread(target=self._relay, name=f"delay-line-{self.directions[0].link}", daemon=True).start()
        found = self.read_back()
        if len(found) != 2:
            raise RunError(
                f"link {self.directions[0].link}: asked for two delay queues, kernel lists {len(found)} with a reader"
            )
        for number, direction in enumerate(self.directions):
            asked = _settings(number, direction)
            for key, value in self._in_force[number].items():
                if asked[key] != value:
                    raise RunError(f"link {direction.link}: asked {key}={asked[key]}, the delay line does {value}")

    def _wait_until_ready(self) -> None:
        assert self.process is not None and self.process.stdout is not None
        timer = threading.Timer(_START_TIMEOUT_S, self.process.kill)
        timer.start()
        line = self.process.stdout.readline()
        timer.cancel()
        if not line:
            raise RunError(
                f"link {self.directions[0].link}: the delay line ended before it was ready;"
                " logs/orchestrator.log says why"
            )
        ready = json.loads(line)
        self.priority, self._in_force = ready["priority"], ready["directions"]

    def _relay(self) -> None:
        assert self.process is not None and self.process.stdout is not None
        for line in self.process.stdout:
            self.report(json.loads(line))

    def read_back(self) -> list[dict[str, Any]]:
        """What the delay line says it does, for each direction whose rule and queue the kernel confirms."""
        rules = run_in(self.middle, ["iptables", "-t", "mangle", "-S", "FORWARD"])
        queues = run_in(self.middle, ["cat", "/proc/net/netfilter/nfnetlink_queue"]).splitlines()
        bound = {int(line.split()[0]) for line in queues}
        return [
            {
                "shaper": "nfqueue",
                "priority": self.priority,
                **self._in_force[number],
            }
            for number, direction in enumerate(self.directions)
            if f"-i {direction.arrives_on} -j NFQUEUE --queue-num {number}" in rules and number in bound
        ]

    def clear(self) -> None:
        if self.process is None:
            return
        self.process.kill()
        self.process.wait()
        self.process = None

    @property
    def is_alive(self) -> bool:
        return self.process is not None and self.process.poll() is None


def _settings(number: int, direction: Direction) -> dict[str, Any]:
    return {
        "link": direction.link,
        "source": direction.source,
        "target": direction.target,
        "delay_s": direction.profile.delay_s,
        "jitter_s": direction.profile.jitter_s,
        "loss_ratio": direction.profile.loss_ratio,
        "limit_packets": direction.limit_packets,
        "seed": direction.seed,
    }
