"""A buffered asynchronous server in a thread of its own, and its workers in that of the test, over loopback.

The server answers each update at once: when a worker has its next model, what it sent before is in the buffer.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any, cast

import torch
from torch import Tensor, nn

from compressors.none import Uncompressed
from testbed.worker.communication.communicator import Communicator
from testbed.worker.device.clock import PhaseClock
from testbed.worker.device.stopwatch import Stopwatch
from testbed.worker.interfaces.numbered_workload import NumberedWorkload
from testbed.worker.interfaces.strategy import WorkerContext
from testbed.worker.methods.federated.aggregation.fedbuff import FedBuff
from testbed.worker.methods.federated.aggregation.methods import Method
from testbed.worker.methods.federated.aggregation.state import AssignedState
from testbed.worker.methods.federated.buffered_server import BufferedServer
from testbed.worker.methods.federated.buffered_worker import BufferedWorker
from testbed.worker.methods.federated.client_sequence import ClientSequence
from testbed.worker.methods.federated.clients.population import Population
from testbed.worker.methods.federated.clients.slowness import Slowness
from testbed.worker.methods.federated.dispatch import Dispatch
from testbed.worker.methods.federated.local_client import LocalClient
from testbed.worker.methods.parameter_server.bounds.baselines import Fixed
from testbed.worker.methods.parameter_server.client import Client
from testbed.worker.methods.parameter_server.membership.admission import Admission
from testbed.worker.methods.parameter_server.membership.clients import ConnectedClients
from testbed.worker.methods.parameter_server.membership.lanes import Lanes
from testbed.worker.methods.parameter_server.messages.coder import Coder
from testbed.worker.methods.parameter_server.messages.plan import Plan
from testbed.worker.methods.parameter_server.messages.plan_request import asked_plan
from testbed.worker.methods.parameter_server.messages.schema import Schema
from testbed.worker.methods.parameter_server.messages.wire import Wire
from testbed.worker.methods.parameter_server.transport.frames import Kind
from testbed.worker.methods.parameter_server.transport.streams import Connection, connect, send
from tests.unit.worker.recorded import Recorded, taken
from tests.unit.worker.server_net import HOST, KEY, PACE, PATIENCE_S, soon
from tests.unit.worker.server_rounds import WIDTH, Regression, Small
from tests.waiting import in_background, joined

METHOD = Method(name="fedavg", server={}, learning_rate=0.1)
CLIENTS, BATCH = 5, 4


class Numbered(Regression):
    """Samples that follow from their numbers."""

    computes = True

    def picked(self, numbers: Tensor) -> Tensor:
        return torch.randn(64, WIDTH, generator=torch.Generator().manual_seed(3))[numbers]


def population() -> Population:
    """Of clients with 6, 8, … samples: a batch of one has no variance."""
    numbers, parts = iter(range(64)), []
    for client in range(CLIENTS):
        parts.append([next(numbers) for _ in range(6 + 2 * client)])
    return Population(parts, batch_size=BATCH, epochs=2, seed=0)


def local(
    state: AssignedState, slowness: Slowness | None = None, clock: PhaseClock | None = None, speed: float = 1.0
) -> LocalClient:
    spec = SimpleNamespace(batch_size=BATCH, dilation=1.0, seed=0)
    context = cast(WorkerContext, SimpleNamespace(spec=spec, clock=clock or PhaseClock(), prepare=_nothing))
    workload = cast(NumberedWorkload, Numbered())
    return LocalClient(context, workload, state, population(), METHOD, speed, slowness or Slowness())


class Worker(BufferedWorker):
    """One whose parts are at hand."""

    def __init__(self, number: int, state: AssignedState, wire: Wire, up: Coder, down: Coder, link: Connection) -> None:
        self.state, self.link, self.wire = state, link, wire
        self.sequence = ClientSequence(number, state, population(), METHOD, local(state))
        given: Any = {"patience_s": PATIENCE_S, "clock": PhaseClock(), "stopwatch": Stopwatch()}
        self.client = Client(
            *(number, state, wire, up, down, self.sequence), basis=Fixed().basis, connection=link, **given
        )
        super().__init__(self.client, state, self.sequence)

    def train(self) -> list[Tensor]:
        """Run its client; what that has changed of the parameters."""
        before = [one.detach().clone() for one in self.state.learning]
        self.sequence.step(None)
        return [one.detach() - old for one, old in zip(self.state.learning, before, strict=True)]

    def send(self) -> None:
        assert self.version is not None, "it has a model"
        self.client.end(self.version)

    def turn(self) -> list[Tensor]:
        """Train, send, and have the next model; what it has sent."""
        delta = self.train()
        self.send()
        self.receive()
        return delta


class Buffered:
    """
    Args:
        versions: that the server makes before it finishes.
    """

    def __init__(
        self,
        *,
        versions: int,
        workers: int = 2,
        size: int = 2,
        up: dict[str, Any] | None = None,
        message_s: float = PATIENCE_S,
    ) -> None:
        self._up = {"codec": "raw"} | (up or {})
        self.state, self._versions = AssignedState(Small()), versions
        plans = self._plans()
        self.wire = Wire(Schema.of(self.state), KEY, *plans, clients=workers, seed=0)
        here = cast(Communicator, SimpleNamespace(address=HOST, charge=_nothing))
        self._admission = Admission(here, self.wire, hello_s=PATIENCE_S)
        self.workers = [self.come(number) for number in range(workers)]
        clock, stopwatch = PhaseClock(), Stopwatch()
        self.connected = ConnectedClients(
            *(self._admission.let_all_in(PATIENCE_S), self._admission),
            message_s=message_s,
            training_s=0.0,
            clock=clock,
            stopwatch=stopwatch,
        )
        self.server = BufferedServer(
            self.wire,
            *(Coder(self.wire.schema, plan) for plan in plans),
            self.state,
            FedBuff(size=size),
            Dispatch(CLIENTS, 0),
            population(),
            Lanes(self.connected, wait_s=message_s, clock=clock, stopwatch=stopwatch),
            clock,
            alpha=Fixed().alpha,
            record=Recorded(),
        )
        self.error: Exception | None = None
        self.versions = [self.learnt]
        """The server's parameters, of each version."""
        self._thread = in_background(self._serve, "of the server")

    @property
    def learnt(self) -> list[Tensor]:
        return [one.detach().clone() for one in self.state.learning]

    def come(self, number: int) -> Worker:
        """A new process's worker of this number, which has said hello."""
        connection = connect(HOST, self._admission.port, own=number, deadline_s=soon(), charge=_nothing)
        send(connection, self.wire.hello(number), self.wire.expected(Kind.MODEL), deadline_s=soon(), pace=PACE)
        up, down = self._plans()
        state, schema = AssignedState(Small(seed=number + 7)), self.wire.schema
        return Worker(number, state, self.wire, Coder(schema, up), Coder(schema, down), connection)

    def ended(self) -> list[dict[str, Any]]:
        """What the server has noted, once it has ended; its workers have gone on to the end by themselves."""
        joined(self._thread)
        return taken(self.server)

    def close(self) -> None:
        for worker in self.workers:
            worker.close()
        self._thread.join(PATIENCE_S)
        self.connected.close()

    def _serve(self) -> None:
        try:
            for _ in range(self._versions):
                self.server.advance()
                self.versions.append(self.learnt)
            self.server.finish()
        except Exception as error:
            self.error = error

    def _plans(self) -> tuple[Plan, Plan]:
        down = Plan(direction="down", payload="params", codec="raw")
        return asked_plan("up", self._up, Uncompressed()), down


@contextmanager
def buffered(**given: Any) -> Iterator[Buffered]:
    made = Buffered(**given)
    try:
        yield made
    finally:
        made.close()


def largest_difference(ours: Sequence[Tensor], theirs: Sequence[Tensor]) -> float:
    return max(float((one - other).detach().abs().max()) for one, other in zip(ours, theirs, strict=True))


def plain(model: nn.Module, tasks: Sequence[tuple[int, int]]) -> None:
    """Train these (client, run) one after another, as anybody would write it."""
    workload, clients = Numbered(), population()
    for client, run in tasks:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for numbers in clients.batches(client, run):
            optimizer.zero_grad()
            workload.loss(model, workload.picked(numbers)).backward()
            optimizer.step()


def _nothing(sent_bytes: int) -> None:
    pass
