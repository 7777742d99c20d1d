"""Asks the probe process for every link's rate and delays, and refuses to train where they are not what was asked."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Collection, Sequence
from typing import Any

from testbed.core.errors import RunError
from testbed.core.record.events.network import Rtt
from testbed.orchestrator.emulation.kernel.tc import FRAME_BYTES
from testbed.orchestrator.emulation.links.network import Network
from testbed.orchestrator.emulation.links.port import Port
from testbed.orchestrator.emulation.measuring.result import ProbeResult
from testbed.orchestrator.emulation.shapers.delay import knot_s
from testbed.orchestrator.emulation.shapers.shaper import Report
from testbed.orchestrator.machine.host_counters import read_host

BURST_S, SHORT_BURST_S, FEW_GROUPS = 0.8, 0.3, 4
"""Where many links are measured one after another, each gets less time."""
CORE_S_PER_UNIT, CORE_S_PER_BYTE = 120e-6, 2e-9
"""Time of one core for each packet or super-packet, and for each byte, while a link is filled (benchmarks.md, cost)."""
BURST_CORES_SHARE = 0.4
LONG_BURST_S = 1.6
"""Length of a second burst, where one beside the workers disagrees: one stall of 6 ms is 2.5% of a short one."""
ACCESS_BURST_S = 0.2
MIN_FRAMES, MAX_BURST_S = 100, 10.0
"""A link so slow that fewer leave meanwhile is filled for longer."""
PROBES = 20
PROBE_EVERY_S, MAX_PROBE_EVERY_S = 0.01, 0.1
"""Time between two probes: longer where there is jitter, as neighbours in time tell the same."""
PAUSES_S = (0.0, 1.0, 3.0, 6.0, 12.0, 24.0)
"""Before each further try: a neighbour on this machine may be busy for some seconds, or for half a minute."""
UNDISTURBED_RATIO = 0.01
"""Share of a core that other machines may take while links are measured."""
_ANSWER_TIMEOUT_S = 30.0
_ENDED = f"the probe process ended or did not answer within {_ANSWER_TIMEOUT_S:.0f} s; logs/orchestrator.log says why"


class LinksNotFilled(RunError):
    """A machine that carries less than a link's rate at this dilation: it may fill the link at a larger one."""


class Prober:
    """The probe process of a run. A context manager."""

    def __init__(self, network: Network, report: Report) -> None:
        self.network = network
        self.report = report
        self.priority = "none"
        self._ports: dict[str, list[Port]] = defaultdict(list)
        self._sent: dict[str, int] = {}
        self._process: subprocess.Popen[str]

    def __enter__(self) -> Prober:
        for port in self.network.ports:
            self._ports[port.link.name].append(port)
        config = {"links": [self._link(link) for link in self.network.topology.links]}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "testbed.orchestrator.emulation.measuring.probe"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            bufsize=1,
            start_new_session=True,
            env=os.environ,
        )
        self._say(config)
        self.priority = self._answer("ready")[-1]["priority"]
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()

    def _link(self, link: Any) -> dict[str, Any]:
        if link.wan:
            pairs = self.network.plan.wan[link.name]
            addresses = {link.a: pairs.a_side.near, link.b: pairs.b_side.near}
        else:
            node, region = (link.a, link.b) if link.a in self.network.workers else (link.b, link.a)
            pair = self.network.plan.access[node]
            addresses = {node: pair.far, region: pair.near}
        ports = {port.source: port for port in self._ports[link.name]}
        ends = {
            key: {
                "name": end,
                "address": str(addresses[end]),
                "namespace": self.network.nodes[end].namespace.path,
                "interface": ports[end].interface,
                "limit_bytes": ports[end].settings.limit_bytes,
                "rate_bit_s": ports[end].profile.rate_bit_s,
            }
            for key, end in (("a", link.a), ("b", link.b))
        }
        return {"name": link.name, "rtt_s": link.rtt_s, **ends}

    def _answer(self, last: str) -> list[dict[str, Any]]:
        """Lines up to the one whose event is `last`."""
        assert self._process.stdout is not None
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

    def _ask(self, **command: Any) -> list[dict[str, Any]]:
        self._say(command)
        return self._answer("finished")

    def _say(self, message: dict[str, Any]) -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(message) + "\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            raise RunError(_ENDED) from None

    def measure(
        self,
        stage: str,
        *,
        access: bool,
        only: Collection[str] | None = None,
        share: float = BURST_CORES_SHARE,
        burst_s: float | None = None,
    ) -> ProbeResult:
        """Round trips of all links, then rates: as many WAN links at once as the cores carry, and one access link.

        Args:
            share: Part of the cores that filling links may take.
            burst_s: Seconds to fill a WAN link for; without, fewer where there are many.
        """
        wan = [link.name for link in self.network.topology.wan_links if only is None or link.name in only]
        groups = self._groups(wan, share)
        seconds = burst_s or (BURST_S if len(groups) <= FEW_GROUPS else SHORT_BURST_S)
        sample = [link.name for link in self.network.topology.access_links[:1] if only is None or link.name in only]
        near = [link.name for link in self.network.topology.access_links if only is None or link.name in only]
        chosen = [*wan, *near] if access else wan
        result = ProbeResult(stage)
        before, began_s = read_host(), time.monotonic()
        for answer in self._ask(do="rtt", links=chosen, count=PROBES, interval_s=self._probe_every_s(chosen)):
            if answer["event"] == "probes":
                result.add_probes(self._ports[answer["name"]][0].link, answer)
        bursts = [(group, seconds) for group in groups]
        if access and sample:
            bursts.append((sample, ACCESS_BURST_S))
        for links, lasting_s in bursts:
            for answer in self._ask(do="burst", links=links, seconds=self._burst_s(links, lasting_s)):
                if answer["event"] == "burst":
                    result.bursts[answer["name"], answer["from"], answer["to"]] = answer
        result.steal_ratio = (read_host().steal_s - before.steal_s) / (time.monotonic() - began_s)
        return result

    def _burst_s(self, links: list[str], least_s: float) -> float:
        slowest_bit_s = min(port.profile.rate_bit_s for name in links for port in self._ports[name])
        return max(least_s, min(MIN_FRAMES * FRAME_BYTES * 8 / slowest_bit_s, MAX_BURST_S))

    def _probe_every_s(self, links: list[str]) -> float:
        jitter_s = max((port.profile.jitter_s for name in links for port in self._ports[name]), default=0.0)
        return min(max(PROBE_EVERY_S, knot_s(jitter_s)), MAX_PROBE_EVERY_S) if jitter_s else PROBE_EVERY_S

    def _groups(self, wan: list[str], share: float) -> list[list[str]]:
        """Those of these WAN links that can be filled at once, both ways, with that share of the cores there are."""
        most_cores = share * (os.cpu_count() or 1)
        groups: list[list[str]] = []
        used_cores = most_cores
        for name in wan:
            cores = sum(_cores_when_full(port) for port in self._ports[name])
            if used_cores + cores > most_cores:
                groups.append([])
                used_cores = 0.0
            groups[-1].append(name)
            used_cores += cores
        return groups

    def measure_or_refuse(self, pauses_s: Sequence[float] = PAUSES_S) -> ProbeResult:
        """Measure before training; measure again what is wrong, with fewer links at once.

        How well the machine carries all of them is for the verdict to say, which watches them while they are used.

        Args:
            pauses_s: Seconds before each further try.

        Raises:
            LinksNotFilled: A link has less than its rate still, after all tries.
            RunError: What else disagrees, since every number of the run would be wrong.
        """
        measured = self.measure("idle", access=True)
        for tried, pause_s in enumerate(pauses_s, 1):
            wrong = self._wrong(measured)
            if not wrong:
                return measured
            time.sleep(pause_s)
            again = self.measure("idle", access=True, only=wrong, share=BURST_CORES_SHARE / 2**tried)
            measured.update(again)
        faults = measured.faults(self.network.ports)
        if not faults:
            return measured
        steal = f" (another machine took {measured.steal_ratio:.0%} of a core meanwhile)"
        refusal = LinksNotFilled if measured.is_below_rates(self.network.ports) else RunError
        raise refusal(
            *(f"{fault}; the last of {measured.tries} tries" for fault in faults),
            f"the machine is too busy or too slow for these links{steal if self._is_disturbed(measured) else ''}: free"
            " its cores, lower the rate, or slow everything down (dilation=)",
        )

    def measure_busy(self) -> ProbeResult:
        """Measure beside the workers' warm-up.

        What disagrees is measured once more, for longer, and the mean of both counts: what this run's own load does to
        its links is for the verdict to know. Only where other machines take cores the last try alone counts.
        """
        measured = self.measure("busy", access=False)
        for pause_s in PAUSES_S:
            wrong = self._wrong(measured)
            if not wrong:
                break
            is_disturbed = self._is_disturbed(measured)
            if is_disturbed:
                time.sleep(pause_s)
            again = self.measure("busy", access=False, only=wrong, burst_s=None if is_disturbed else LONG_BURST_S)
            if not is_disturbed and not self._is_disturbed(again):
                measured.add_longer(again)
                break
            measured.update(again)
        return measured

    def _wrong(self, measured: ProbeResult) -> set[str]:
        """The links that are not as asked."""
        return {port.link.name for port in self.network.ports if measured.faults([port])}

    @staticmethod
    def _is_disturbed(measured: ProbeResult) -> bool:
        return measured.steal_ratio > UNDISTURBED_RATIO

    @property
    def failure(self) -> str | None:
        """Reason that round trips are not watched any more; None while they are."""
        if self._process.poll() is None:
            return None
        return "the probe process ended: round trips are not watched; logs/orchestrator.log says why"

    def watch(self, interval_s: float) -> None:
        """From now on report a probe of every WAN link each interval."""
        links = [link.name for link in self.network.topology.wan_links]
        if not links:
            return
        self._say({"do": "watch", "links": links, "interval_s": interval_s})
        threading.Thread(target=self._relay, name="probe-relay", daemon=True).start()

    def probes_sent(self, link: str) -> int:
        """Return the number of probes that `watch` has sent over a link so far."""
        return self._sent.get(link, 0)

    def _relay(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            message = json.loads(line)
            if message["event"] == "rtt":
                probe = Rtt.from_json(message)
                self._sent[probe.name] = probe.sent
                self.report(probe.to_json())


def _cores_when_full(port: Port) -> float:
    rate_byte_s = port.profile.rate_bit_s / 8
    return rate_byte_s * (CORE_S_PER_BYTE + CORE_S_PER_UNIT / port.settings.most_unit_bytes)
