"""The links of a run, with what measures them: built once, and given other terms when the dilation changes."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from typing import Any

from testbed.core.record.run_directory import RunDir, write_json
from testbed.core.spec.paths import WIRE_RATIO, wire_ratio
from testbed.core.spec.run_spec import RunSpec
from testbed.orchestrator.emulation.kernel import slowed_tcp, tcp
from testbed.orchestrator.emulation.kernel.namespaces import Namespace
from testbed.orchestrator.emulation.kernel.slowed_tcp import SlowedTcp
from testbed.orchestrator.emulation.kernel.tcp import TcpProfile
from testbed.orchestrator.emulation.links.network import Network
from testbed.orchestrator.emulation.measuring.prober import PAUSES_S, LinksNotFilled, Prober
from testbed.orchestrator.emulation.measuring.result import ProbeResult
from testbed.orchestrator.observation.verdict.judge import Judge
from testbed.orchestrator.run.links.network_record import NetworkRecord

IDLE_SLOWDOWN, BUSY_SLOWDOWN = 2.0, 1.5
"""Factors of the dilation after links were not filled, by nobody else's work and beside that of workers: assumed."""

Event = dict[str, Any]


class MeasuredNetwork:
    """A context manager; must be used inside the run's own network namespace.

    Args:
        write: takes events of links and probes.
        most_dilation: Largest one that may be taken where this machine does not fill the links at that of `spec`; None
            keeps that.
    """

    def __init__(
        self,
        spec: RunSpec,
        shaper: str,
        run: RunDir,
        judge: Judge,
        write: Callable[[Event], None],
        namespaces: Mapping[str, Namespace] | None = None,
        most_dilation: float | None = None,
    ) -> None:
        self._spec, self._most_dilation = spec, most_dilation
        self._run, self._judge, self._write = run, judge, write
        self.report = write
        """Takes events of the shaper. A pilot's are none of the run's."""
        self._stack = ExitStack()
        self._slowed_tcp: SlowedTcp | None = None
        """Of this run, where there can be one: its seconds are emulated ones."""
        self._probing = ExitStack()
        self.network = Network(
            *(spec.topology.dilated(spec.dilation), _profile(spec), shaper),
            *(lambda event: self.report(event), spec.seed, namespaces),
        )
        self.dilation = spec.dilation
        self.least_dilation = 1.0
        """Below it this machine does not fill the links, as far as was tried."""

    def __enter__(self) -> MeasuredNetwork:
        with ExitStack() as stack:
            base = self.network.tcp.congestion_control
            if base in slowed_tcp.BASES and slowed_tcp.lack(base) is None:
                cap_bit_s = self._spec.topology.flow_cap_bit_s
                if cap_bit_s is not None:  # the kernel paces payload, and takes frames to be of the usual size
                    cap_bit_s *= WIRE_RATIO / wire_ratio(self._spec.topology)
                self._slowed_tcp = stack.enter_context(SlowedTcp(base, self.dilation, cap_bit_s))
                self.network.tcp = dataclasses.replace(self.network.tcp, registered=self._slowed_tcp.name)
            stack.enter_context(self.network)
            stack.push(lambda *_: self._probing.close())
            self._tell_routers()
            self._measure_or_slow_down()
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _tell_routers(self) -> None:
        """Say where the routers' namespaces are, for `longhaul exec REGION`: descriptors of this process hold them."""
        routers = {region: node.namespace.descriptor for region, node in self.network.routers.items()}
        write_json(self._run.runtime / "routers.json", routers)

    def _measure_or_slow_down(self) -> None:
        """Measure before training; give the links another dilation while this machine does not fill them.

        Raises:
            RunError: a link is not as asked.
        """
        while self._may_slow_down:
            try:
                self._measure(PAUSES_S[:2])
                return
            except LinksNotFilled:
                self._take_slower(IDLE_SLOWDOWN)
        self._measure()

    @property
    def _may_slow_down(self) -> bool:
        return self._most_dilation is not None and self.dilation < self._most_dilation

    def _take_slower(self, times: float) -> None:
        assert self._most_dilation is not None
        self._probing.close()
        self.least_dilation = min(self._most_dilation, round(times * self.dilation, 2))
        self.retime(dataclasses.replace(self._spec, dilation=self.least_dilation))

    def slow_down(self) -> None:
        """Give the links a larger dilation, since beside workers this machine does not fill them; measure them there.

        Raises:
            RunError: a link is not as asked.
        """
        self._take_slower(BUSY_SLOWDOWN)
        self._measure_or_slow_down()

    def _measure(self, pauses_s: Sequence[float] = PAUSES_S) -> None:
        """Measure before training.

        Raises:
            RunError: a link is not as asked.
        """
        self.prober = self._probing.enter_context(Prober(self.network, self._write))
        self.record = NetworkRecord(self._run, self.network, self.prober, self._judge, self._write, self.dilation)
        self.record.add(self.prober.measure_or_refuse(pauses_s))

    def retime(self, spec: RunSpec) -> None:
        """Give the links the terms of the dilation of `spec`."""
        profile = dataclasses.replace(_profile(spec), registered=self.network.tcp.registered)
        self.network.retime(spec.topology.dilated(spec.dilation), profile)
        if self._slowed_tcp is not None:
            self._slowed_tcp.set_dilation(spec.dilation)
        self.dilation = spec.dilation

    def measure_again(self) -> None:
        """Once links were given other terms.

        Raises:
            RunError: a link is not as asked.
        """
        self._probing.close()
        self._measure()

    def measure_busy(self) -> ProbeResult:
        """Measure the links while workers compute.

        Raises:
            LinksNotFilled: one has less than its rate, and a larger dilation may be taken; nothing is recorded then.
        """
        measured = self.prober.measure_busy()
        if self._may_slow_down and measured.is_below_rates(self.network.ports):
            raise LinksNotFilled(*measured.faults(self.network.ports))
        self.record.add(measured)
        return measured

    @property
    def failure(self) -> str | None:
        """Reason that links or probes can no longer do their part; None while they do."""
        return self.network.shaper.failure or self.prober.failure


def _profile(spec: RunSpec) -> TcpProfile:
    return tcp.profile(spec.tcp, spec.outermost_topology.dilated(spec.dilation), spec.dilation)
