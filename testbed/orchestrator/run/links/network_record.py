"""Writes `network.json`:

of every link and direction what was asked, what the kernel reports, what was measured and when.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

from testbed.core.record.events.network import Measurement
from testbed.core.record.run_directory import RunDir, write_json
from testbed.orchestrator.emulation.kernel.dilation import emulated
from testbed.orchestrator.emulation.links.network import Network
from testbed.orchestrator.emulation.links.port import Port
from testbed.orchestrator.emulation.measuring.prober import Prober
from testbed.orchestrator.emulation.measuring.result import ProbeResult
from testbed.orchestrator.observation.verdict.judge import Judge


class NetworkRecord:
    """Grows by a stage of measurement at a time; each also becomes `measurement` events, which the judge reads."""

    def __init__(
        self,
        run: RunDir,
        network: Network,
        prober: Prober,
        judge: Judge,
        write: Callable[[dict[str, Any]], None],
        dilation: float,
    ) -> None:
        self._run = run
        self._dilation = dilation
        self._network = network
        self._prober = prober
        self._judge = judge
        self._write = write
        self._measured: dict[tuple[str, str, str], list[dict[str, Any]]] = {}
        """Measurements of each direction, one a stage."""
        self._built: dict[tuple[str, str, str], dict[str, Any]] = {}
        """Links as they were measured, before any event changed them."""

    def add(self, measured: ProbeResult) -> None:
        self._built = self._built or {port.key: port.to_json(self._dilation) for port in self._network.ports}
        for port in self._network.ports:
            entry = measured.entry(port)
            if entry is not None:
                entry = emulated(entry, self._dilation)
                self._measured.setdefault(port.key, []).append(entry)
                name, source, target = port.key
                self._write(Measurement(name=name, from_=source, to=target, **entry).to_json())
        self._save([self._link(port) for port in self._network.ports])

    def finish(self) -> None:
        """Write the record after training, with what the judge saw of full queues and losses.

        `measured` stays the burst's rate: windows of some milliseconds in training are for the verdict, not a better
        figure. `asked` stays what was built, so that both are of one moment; what events made of it is in `at_end`.
        """
        links = []
        for port in self._network.ports:
            link = self._link(port)
            rate_bit_s = self._judge.training_rate_bit_s(*port.key)
            if rate_bit_s is not None:
                link["measurements"].append({"stage": "training", "rate_bit_s": rate_bit_s, "rtt_s": None})
            now = self._asked_now(port)
            if now != link["asked"]:
                link["at_end"] = now
            link["measured"]["loss_ratio"] = self._judge.loss_ratio(*port.key)
            links.append(link)
        self._save(links)

    def _asked_now(self, port: Port) -> dict[str, Any]:
        """Return `asked` as events have left it; the round trip is of both directions."""
        name, source, target = port.key
        asked: dict[str, Any] = port.to_json(self._dilation)["asked"]
        ways = {one.key: one for one in self._network.ports if one.key in (port.key, (name, target, source))}
        delays_s = [one.to_json(self._dilation)["asked"]["delay_s"] for one in ways.values()]
        if delays_s != [self._built[key]["asked"]["delay_s"] for key in ways]:
            asked["rtt_s"] = sum(delays_s)
        return asked

    def _link(self, port: Port) -> dict[str, Any]:
        link = copy.deepcopy(self._built[port.key])
        link["measurements"] = list(self._measured.get(port.key, ()))
        for key in ("rate_bit_s", "rtt_s", "delay_s"):
            known = [entry[key] for entry in link["measurements"] if entry[key] is not None]
            link["measured"][key] = known[-1] if known else None
        return link

    def _save(self, links: list[dict[str, Any]]) -> None:
        network = self._network
        write_json(
            self._run.network,
            {
                "shaper": network.shaper.name,
                "dilation": self._dilation,
                "probe_priority": self._prober.priority,
                "tcp": network.tcp.name,
                "congestion_control": network.tcp.congestion_control,
                "links": links,
            },
        )
