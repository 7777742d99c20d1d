"""From empty namespaces to the last worker's end: network up, measured, workers, schedule, observation, down."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any, Protocol

from testbed.core.errors import Interrupted, RunError
from testbed.core.record.events.network import ForeignInterface
from testbed.core.record.run_directory import RunDir, write_json
from testbed.core.record.telemetry import KEPT_MODEL
from testbed.core.spec.run_spec import RunSpec
from testbed.orchestrator.config import programs
from testbed.orchestrator.config.models import take_over
from testbed.orchestrator.emulation.containers.docker_container import Holders
from testbed.orchestrator.emulation.containers.driver import driver_of
from testbed.orchestrator.emulation.containers.sandbox import Sandbox
from testbed.orchestrator.emulation.links.network import Network
from testbed.orchestrator.emulation.measuring.capture import Capture
from testbed.orchestrator.emulation.measuring.prober import Prober
from testbed.orchestrator.emulation.shapers.shaper_selection import choose
from testbed.orchestrator.emulation.traffic.background import BackgroundTraffic
from testbed.orchestrator.machine import provenance
from testbed.orchestrator.machine.rights import OF_ROOT, Rights
from testbed.orchestrator.machine.signals import Stop
from testbed.orchestrator.observation.collector import Collector
from testbed.orchestrator.observation.recorder import Recorder
from testbed.orchestrator.run.dilation.calibration import Calibration, calibrated_at, usable_cores
from testbed.orchestrator.run.dilation.first_guess import most_dilation
from testbed.orchestrator.run.dilation.pilot import Pilot
from testbed.orchestrator.run.links.measured_network import MeasuredNetwork
from testbed.orchestrator.run.schedule import Schedule
from testbed.orchestrator.run.script_output import LiveOutput, keep
from testbed.orchestrator.run.workers.fork_server import ForkServerClient
from testbed.orchestrator.run.workers.sandboxes import holders_of, sandbox_of
from testbed.orchestrator.run.workers.scripts import Scripts
from testbed.orchestrator.run.workers.warm_up import beside_filled_links, until_warm
from testbed.orchestrator.run.workers.workers import Workers

PROBE_EVERY_S = 0.5
LEAD_S, LEAD_OF_WORKER_S = 0.2, 0.01
"""Seconds until the beginning once workers are told: they hear it one after another, on few cores."""
BUSY_OF_CORE = 4
"""Workers that compute beside the second measurement; more would fill memory, and cores no further."""
_EXIT_TIMEOUT_S = 5.0

Event = dict[str, Any]


class Record(Protocol):
    """The part of its record that a run's orchestration needs."""

    run: RunDir
    recorder: Recorder
    stop: Stop
    began_unix_s: float

    def write(self, event: Event) -> None: ...

    def stage(self, what: str, text: str) -> None: ...

    def show(self, text: str) -> None: ...

    def progress(self, what: str, done: float, total: float | None = None) -> None: ...

    def begin(self, t0_s: float) -> float:
        """Emulated time counts from here; returns the same moment on the wall clock."""

    def retime(self, spec: RunSpec) -> None:
        """The run has the dilation of `spec`."""


class RunOrchestration:
    """Performs one run. `perform` raises what went wrong.

    Args:
        shared: the machine may be, so that the record says it.
        host_proc: a descriptor of the host's /proc, for the docker runtime, which no other needs.
        shared_start: False starts an interpreter for each worker of our training, for comparison.
        tries: False takes a dilation that is chosen as it is, without a pilot.
    """

    def __init__(
        self,
        spec: RunSpec,
        record: Record,
        *,
        shared: bool,
        shared_start: bool = True,
        tries: bool = True,
        rights: Rights = OF_ROOT,
        host_proc: int | None = None,
    ) -> None:
        self.spec = spec
        self._record = record
        self._shared = shared
        self._rights = rights
        self._program = programs.program_of(spec)
        self._host_proc, self._driver = host_proc, driver_of(spec)
        self._tries = tries and spec.auto_dilation and not spec.guessed_dilation
        # what docker starts lies in no pid namespace that the run could fork into
        self._is_forked = shared_start and self._program.is_forked and spec.runtime != "docker"
        first = spec.topology.nodes[0].name
        self._output = LiveOutput(first, record.run.log(first), record.show) if self._program.is_users else None
        self._watched: list[Callable[[], str | None]] = []
        """Each says why it can no longer do its part; None while it does."""

    def perform(self) -> None:
        spec, record = self.spec, self._record
        chosen, why = choose(spec.shaper)
        record.stage("network", f"network: {spec.workers} nodes, {len(spec.topology.wan_links)} WAN link(s), {chosen}")
        with ExitStack() as stack:
            fork_server = ForkServerClient(spec, record.run, self._rights, self._driver) if self._is_forked else None
            has_core_for_imports = usable_cores() > 1
            if fork_server and has_core_for_imports:
                stack.enter_context(fork_server)  # first, so that they overlap with the network's set-up
            is_docker = spec.runtime == "docker"
            holders = stack.enter_context(holders_of(spec, record.run, self._host_proc)) if is_docker else None
            namespaces = holders.namespaces if holders else None
            most, judge = most_dilation(spec) if self._tries else None, record.recorder.judge
            links = MeasuredNetwork(spec, chosen, record.run, judge, record.write, namespaces, most)
            stack.enter_context(links)
            self._retime(links.dilation)
            self._watched.append(lambda: links.failure)
            record.stage(
                "measured", f"links measured at dilation {links.dilation:g}: all rates and round trips as asked"
            )
            if (refusal := links.network.cores.refusal) is not None:
                record.stage("cores", f"idle cores may sleep, and wake late ({refusal})")
            if fork_server and not has_core_for_imports:
                stack.enter_context(fork_server)  # only now: it would have taken the core that measured the links
            sandbox = sandbox_of(spec, self._program, record.run, links.network, self._rights, self._driver)
            if fork_server and self._tries:
                self._pilot(links, sandbox, fork_server)
            self._facts = {
                **provenance.collect(spec.runtime),
                "shaper": {"chosen": chosen, "why": why},
                "machine_shared": self._shared,
                "cores_kept_awake": links.network.cores.refusal is None,
                "rights_lost": self._rights.lost(),
                **self._driver.facts(spec.workers),
            }
            self._train(stack, links, sandbox, holders, fork_server)

    def _pilot(self, links: MeasuredNetwork, sandbox: Sandbox, fork_server: ForkServerClient) -> None:
        """Find the dilation by trying."""
        record = self._record

        def start(spec: RunSpec, take: Callable[[Event], None]) -> Workers:
            return Workers(spec, self._program, record.run, links.network, sandbox, take, fork_server)

        def begin(workers: Workers) -> tuple[float, float]:
            until_warm(workers, workers.nodes)
            t0_s = self._beginning_s()
            workers.go(t0_s)
            return fork_server.imported_s, t0_s

        seats = len(self._driver.devices) or usable_cores()
        self._retime(Pilot(self.spec, links, record, start, begin, self._follow, seats).choose().dilation)

    def _retime(self, dilation: float) -> None:
        """Go on with a dilation that was found by trying."""
        if dilation == self.spec.dilation:
            return
        record, self.spec = self._record, dataclasses.replace(self.spec, dilation=dilation)
        record.retime(self.spec)
        if (profiles := record.run.read_json(record.run.profiles)) is not None:
            again = calibrated_at(self.spec, Calibration.from_json(profiles), record.show)
            write_json(record.run.profiles, again.to_json())

    def _train(
        self,
        stack: ExitStack,
        links: MeasuredNetwork,
        sandbox: Sandbox,
        holders: Holders | None,
        fork_server: ForkServerClient | None,
    ) -> None:
        spec, record, network = self.spec, self._record, links.network
        if spec.capture != "none":
            capture = stack.enter_context(Capture(network, record.run.capture, spec.capture))
            self._watched.append(lambda: capture.failure)
        scripts = Scripts((holders or sandbox).store) if self._program.is_users else None

        def start() -> Workers:
            return Workers(self.spec, self._program, record.run, network, sandbox, record.write, fork_server, scripts)

        if spec.program == "training":
            busy = BUSY_OF_CORE * usable_cores()
            workers = beside_filled_links(stack, links, start, self._retime, record.stage, busy)
            spec = self.spec
        else:
            workers = stack.enter_context(start())
            stack.push(self._keeping(workers, scripts))
            record.stage("workers", f"workers: {len(workers.nodes)} containers started")
        for note in {note for one in workers.containers.values() if one.disk for note in one.disk.notes}:
            record.stage("workers", note)
        background = stack.enter_context(BackgroundTraffic(network, spec.background, spec.dilation, record.write))
        self._watched.append(lambda: background.failure)
        self._run(network, links.prober, workers, background)
        if spec.keeps_model:
            kept = (holders or sandbox).store(workers.nodes[0]) / KEPT_MODEL
            record.stage("kept", f"kept: {take_over(kept, record.run.model)}")
        links.record.finish()

    def _keeping(self, workers: Workers, scripts: Scripts | None) -> Callable[..., None]:
        """Return what is done once a user's script has ended, well or not, before its containers are removed."""

        def kept(_kind: object, fault: BaseException | None, _traceback: object) -> None:
            if scripts is None or self._output is None:
                return
            self._output.end()
            for event in (*scripts.ends(), *scripts.used(self._record.began_unix_s)):
                self._record.write(event.to_json())
            try:
                folder = keep(workers.containers, self._record.run.out)
            except RunError as error:
                if fault is None:
                    raise
                self._record.stage("kept", f"not kept: {error}")
                return
            if folder is not None:
                self._record.stage("kept", f"kept: what the script wrote is in {folder}/")

        return kept

    def _run(self, network: Network, prober: Prober, workers: Workers, background: BackgroundTraffic) -> None:
        spec, record = self.spec, self._record
        collector = Collector(network, workers.containers, background, record.write, prober.probes_sent)
        schedule = Schedule(spec.events, spec.topology, spec.dilation, network, workers, record.write)
        self._watched += [lambda: collector.failure_text, lambda: str(schedule.failure) if schedule.failure else None]
        try:
            for node, interface in collector.foreign_interfaces():
                record.write(ForeignInterface(node=node, interface=interface).to_json())
            if spec.program == "training":
                network.tcp.require_used(collector.congestion_controls())
            t0_s = self._beginning_s()
            facts = {**self._facts, "sysctls": network.sysctls, "tcp": network.tcp.to_json()}
            facts.update(record.run.read_json(record.run.profiles) or {})
            write_json(record.run.provenance, {**facts, "start_unix_s": record.begin(t0_s)})
            collector.start()
            background.start(t0_s)
            schedule.start(t0_s)
            prober.watch(PROBE_EVERY_S)
            if spec.program != "hand":
                workers.go(t0_s)
            record.stage("go", {"training": "training", "script": "script", "hand": "ready"}[spec.program])
            if self._output is not None:
                self._output.begin()
            try:
                self._follow(workers, lambda: workers.all_done and spec.program != "hand")
            except Interrupted:
                raise
            except RunError as error:
                raise RunError("; ".join([str(error), *schedule.down_links])) from error
            finally:
                schedule.stop()
                collector.stop()
                for event in workers.rendezvous.events():
                    record.write(event)
            if schedule.pending:
                record.stage("schedule", f"{schedule.pending} changes were still to come when it ended")
            self._raise_failures()
            workers.wait_for_exit(_EXIT_TIMEOUT_S if spec.program != "hand" else 0.0)
        finally:
            collector.close()

    def _beginning_s(self) -> float:
        """Return the moment (CLOCK_MONOTONIC) at which workers that are told now can all begin."""
        return time.monotonic() + LEAD_S + LEAD_OF_WORKER_S * self.spec.workers

    def _follow(self, workers: Workers, is_over: Callable[[], bool]) -> None:
        """Until `is_over`; nodes for a user's hand are done when somebody says so.

        A signal is noted, and heeded between two messages: raised in the midst of a look at a process it would leave
        that process's lock taken, and whoever waits for it later would wait for ever.
        """
        try:
            with self._record.stop.noted():
                while not is_over():
                    workers.next_message()
                    if self._output is not None:
                        self._output.poll()
                    self._raise_failures()
                    self._record.stop.heed()
        except Interrupted:
            if self.spec.program != "hand":
                raise

    def _raise_failures(self) -> None:
        if self._record.recorder.failure is not None:
            raise self._record.recorder.failure
        for said in (failure() for failure in self._watched):
            if said is not None:
                raise RunError(said)
