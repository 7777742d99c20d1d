"""Starts the workers in their containers, has them begin, and names the one that dies."""

from __future__ import annotations

import contextlib
import queue
import signal
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

from testbed.core.errors import RunError
from testbed.core.record.run_directory import RunDir
from testbed.core.record.telemetry import Welcome
from testbed.core.spec.run_spec import RunSpec
from testbed.orchestrator.config.programs import Program
from testbed.orchestrator.emulation.containers.docker_container import DockerContainer, write_files
from testbed.orchestrator.emulation.containers.exit_report import exit_report
from testbed.orchestrator.emulation.containers.node_disk import OUT_IN_NODE
from testbed.orchestrator.emulation.containers.rendezvous_service import RendezvousService
from testbed.orchestrator.emulation.containers.runc_container import Container
from testbed.orchestrator.emulation.containers.sandbox import Sandbox
from testbed.orchestrator.emulation.links.network import WORKER_INTERFACE, Network
from testbed.orchestrator.run.workers.conversations import Conversations, welcome
from testbed.orchestrator.run.workers.first_rank import FirstRank
from testbed.orchestrator.run.workers.fork_server import PAUSE, ForkServerClient, Process, interpreter_environment
from testbed.orchestrator.run.workers.listeners import WorkerListeners
from testbed.orchestrator.run.workers.membership import Membership
from testbed.orchestrator.run.workers.messages import Message
from testbed.orchestrator.run.workers.scripts import Scripts

_POLL_S = 0.1
_LOOK_S = 1.0
"""Between two looks for who was killed while the others keep on talking, where they go on without it."""
_BLAME_S = 1.0
"""How long a worker's complaint waits for news of one that was killed."""
_STARTS_AT_ONCE = 4
_LEAVE_TIMEOUT_S = 5.0


class Workers:
    """The workers of one run. A context manager: leaving it kills and removes the containers.

    Args:
        record: is given what workers say and which of them are lost.
        fork_server: forks each worker into its container; without one the runtime starts the program there.
        scripts: attend to a user's script; None where no such program runs.
    """

    def __init__(
        self,
        spec: RunSpec,
        program: Program,
        run: RunDir,
        network: Network,
        sandbox: Sandbox,
        record: Callable[[Message], None],
        fork_server: ForkServerClient | None = None,
        scripts: Scripts | None = None,
    ) -> None:
        self.spec = spec
        self.program = program
        self.run = run
        self.nodes = [node.name for node in spec.topology.nodes]
        self._network = network
        self._sandbox = sandbox
        self._profile = (run.read_json(run.profiles) or {}).get("device_profile")
        self._record, self._fork_server, self._scripts = record, fork_server, scripts
        self._membership = Membership(self.nodes, patience_s=spec.timeout_s * spec.dilation)
        self._first = FirstRank(spec.events, self.nodes[0])
        self._restarted: set[str] = set()
        self._t0_s: float | None = None
        self._least_dilation = spec.dilation
        self._looked_s = 0.0
        self.containers: dict[str, Container | DockerContainer] = {}
        self._processes: dict[str, Process] = {}
        steps = spec.steps if scripts is None else None
        self.conversations = Conversations(self.nodes, self._welcome, self._node_of, steps, self._now_s)
        self.rendezvous = RendezvousService(len(self.nodes))
        self._meeting = WorkerListeners(self.rendezvous.serve)

    def __enter__(self) -> Workers:
        try:
            self._make_containers()
            with ThreadPoolExecutor(_STARTS_AT_ONCE) as pool:
                list(pool.map(self._start, self.containers.values()))
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.conversations.close()
        self._meeting.close()
        for container in self.containers.values():
            container.kill()
        with ThreadPoolExecutor(_STARTS_AT_ONCE) as pool:
            list(pool.map(lambda one: one.delete(), self.containers.values()))

    def _make_containers(self) -> None:
        if self.spec.runtime == "docker":
            write_files(self._sandbox, self.run.docker)
            for node in self.nodes:
                box = self.containers[node] = DockerContainer(self._sandbox, self.run.docker, node, self.run.log(node))
                self.conversations.open_for(node, box.socket)
                self._meeting.open_for(node, box.rendezvous)
            return
        self.conversations.open(self.run.socket)
        root = self._sandbox.root
        self._sandbox.empty_stores()
        for node, worker in self._network.workers.items():
            self._meeting.open_for(node, self._sandbox.rendezvous(node))
            self.containers[node] = Container(self._sandbox, root, node, worker.namespace.path, self.run.log(node))

    def _start(self, container: Container | DockerContainer) -> None:
        rank = self.nodes.index(container.node)
        environment = {
            **interpreter_environment(self.run.run_id),
            **self._sandbox.driver.environment(),
            "LONGHAUL_NODE": container.node,
            **({} if container.disk is None else {"LONGHAUL_OUT": OUT_IN_NODE}),
            **self.program.environment(rank, self._master_address(), WORKER_INTERFACE),
        }
        directory = self.program.working_directory() or self._sandbox.clone
        if self._fork_server is None or isinstance(container, DockerContainer):
            container.start(self.program.command(), environment, directory)
            self._processes[container.node] = self._scripts.attend(container, rank) if self._scripts else container
        else:
            container.start(list(PAUSE), environment, directory)
            self._processes[container.node] = self._fork_server.fork(container, environment, directory)

    def _master_address(self) -> str:
        return str(self._network.plan.node_address(self.nodes[0]))

    def crash(self, node: str) -> None:
        """At once and without a word."""
        self._take_away(node)
        self._first.crash(node)
        self.containers[node].kill()

    def leave(self, node: str) -> None:
        """Asked to, by SIGTERM; what it does with it is its own."""
        self._take_away(node)
        self._processes[node].kill(signal.SIGTERM)

    def join(self, node: str) -> None:
        """Back again, from the beginning.

        Raises:
            RunError: it has not gone.
        """
        container = self.containers[node]
        container.kill()
        self._processes[node].wait(_LEAVE_TIMEOUT_S)
        if self._outlives(node):
            self._membership.lose(node, self._end_of(node, self._processes[node].exit_code() or 0))
        container.wait(_LEAVE_TIMEOUT_S)
        container.delete()
        self.conversations.end(node)
        self._restarted.add(node)
        self._start(container)
        self._membership.come_back(node)
        self._first.join(node)

    def _take_away(self, node: str) -> None:
        if not self.program.loss_is_fault:
            self._membership.leave(node)

    def _outlives(self, node: str) -> bool:
        """Whether the others go on without it; before the first step all must be there."""
        return self._t0_s is not None and (self._membership.outlives(node) or self._first.is_awaited(node))

    def _node_of(self, pid: int) -> str | None:
        node = next((node for node, process in list(self._processes.items()) if process.pid == pid), None)
        return node or (self._scripts.node_of(pid) if self._scripts else None)

    def _welcome(self, node: str) -> Welcome:
        is_back, devices = node in self._restarted, len(self._sandbox.driver.devices)
        return welcome(self.spec, node, self._master_address(), self._profile, devices, is_back=is_back)

    def _now_s(self) -> float | None:
        """Return the present moment in emulated seconds since the first step; in a pilot, the latest that it can be."""
        return None if self._t0_s is None else max(0.0, time.monotonic() - self._t0_s) / self._least_dilation

    def order(self, event: str, nodes: Sequence[str]) -> None:
        """Have these nodes do what `event` asks: "busy" or "rest" of `core.record.telemetry`."""
        self._tell(nodes, {"event": event})

    def pace(self, step: int, dilation: float) -> None:
        """Have all take steps from `step` on at `dilation`."""
        self._least_dilation = min(self._least_dilation, dilation)
        self._tell(self.nodes, {"event": "pace", "step": step, "dilation": dilation})

    def go(self, t0_s: float) -> None:
        """Have the workers begin: our training at `t0_s`, a script at once."""
        if self._scripts is not None:
            self._scripts.go()
            return
        self._t0_s = t0_s
        self.rendezvous.begin()
        self._tell(self.nodes, {"event": "go", "t0_s": t0_s})

    def _tell(self, nodes: Sequence[str], message: Message) -> None:
        try:
            self.conversations.tell(nodes, message)
        except OSError as error:
            self._look_for_killed()
            self._look_for_dead()
            raise RunError(f"a worker did not take the word {message['event']!r}: {error}") from error

    def next_message(self) -> tuple[str, Message] | None:
        """Record and return the next message of any worker, or that one was lost; None after a moment without.

        Raises:
            RunError: a worker without which the run cannot go on reported a fault, or ended before it was done; says
                which, how, and its last words.
        """
        if self._membership.may_lose and time.monotonic() - self._looked_s > _LOOK_S:
            self._look_for_dead(killed_only=True)
        if (lost := self._membership.take_loss()) is not None:
            return self._recorded(*lost)
        if self._membership.forsaken:
            alone = f"{self.nodes[0]} neither went on nor ended alone"
            raise RunError("; ".join([alone, *self._membership.told_losses]))
        try:
            said = self.conversations.next(_POLL_S)
        except queue.Empty:
            self._look_for_dead()
            return None
        return self._recorded(*said) if said is not None and self._is_for_the_record(*said) else None

    def _recorded(self, node: str, message: Message) -> tuple[str, Message]:
        if message["event"] != "warm":
            # Before step 1 a worker's time counts from a beginning that is still to come.
            self._record({key: each for key, each in message.items() if key != "t_s" or self._t0_s is not None})
        return node, message

    def _is_for_the_record(self, node: str, message: Message) -> bool:
        """What follows for the run from what a worker says."""
        event = message["event"]
        if event in ("fault", "leaving") and self._outlives(node):
            self._membership.lose(node, message["message"], says_so=event == "leaving")
            if event == "fault":
                self.containers[node].kill()  # whatever it does yet, it is no part of the run
            return False
        if event in ("fault", "leaving"):
            self._look_for_killed()
            said = [f"worker {self.nodes.index(node)} on {node}: {message['message']}", *self._membership.told_losses]
            raise RunError("; ".join(said))
        if event == "warm" and self._t0_s is not None:  # it has come back
            with contextlib.suppress(OSError):  # and gone again
                self.conversations.tell([node], {"event": "go", "t0_s": self._t0_s})
            return False
        self._membership.hear(node, message)
        return self._first.is_news(node, message)

    def _look_for_killed(self) -> None:
        """A worker that was killed says nothing, while those that lost it complain: it is the one to name."""
        deadline_s = time.monotonic() + _BLAME_S
        while time.monotonic() < deadline_s:
            self._look_for_dead(killed_only=True)
            time.sleep(_POLL_S)

    def _look_for_dead(self, *, killed_only: bool = False) -> None:
        if self._fork_server is not None and self._fork_server.failure is not None:
            raise RunError(self._fork_server.failure)
        self._looked_s = time.monotonic()
        dead = []
        for rank, node in enumerate(self.nodes):
            code = None if self._membership.has_ended(node) else self._processes[node].exit_code()
            if code == 0 and not self.program.is_told_when_done:
                self._membership.finish(node)
            elif code is not None and (code < 0 or not killed_only):
                if self._outlives(node):
                    self._membership.lose(node, self._end_of(node, code))
                else:
                    dead.append((rank, node, code))
        if dead and self._scripts:
            codes = {node: code for _, node, code in dead}
            raise RunError(self._scripts.blame(codes, self._membership.is_away, self._end_of, patience_s=_BLAME_S))
        if dead:
            rank, node, code = min(dead, key=lambda found: (found[2] >= 0, found[0]))
            raise RunError(f"worker {rank} on {node} {self._end_of(node, code)}{self._first.hint(node)}")

    def _end_of(self, node: str, code: int) -> str:
        return f"{self.containers[node].ended(code)} before it was done; {exit_report(self.run.log(node))}"

    @property
    def all_done(self) -> bool:
        return self._membership.all_done

    def wait_for_exit(self, timeout_s: float) -> None:
        """Give the workers time to leave their process group; who does not is killed on leaving the context."""
        deadline_s = time.monotonic() + timeout_s
        while any(p.exit_code() is None for p in self._processes.values()) and time.monotonic() < deadline_s:
            time.sleep(_POLL_S / 2)
