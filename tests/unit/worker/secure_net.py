"""A federated server in the thread of the test, and its workers in threads of their own, over loopback."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any, cast

import torch
from torch import Tensor, nn

from testbed.core.errors import RunError
from testbed.worker.communication.communicator import Communicator
from testbed.worker.device.clock import PhaseClock
from testbed.worker.device.stopwatch import Stopwatch
from testbed.worker.interfaces.numbered_workload import NumberedWorkload
from testbed.worker.interfaces.strategy import WorkerContext
from testbed.worker.methods.federated.aggregation.methods import Method
from testbed.worker.methods.federated.aggregation.state import FederatedState
from testbed.worker.methods.federated.client_sequence import ClientSequence
from testbed.worker.methods.federated.clients.population import Population
from testbed.worker.methods.federated.clients.sampling import Sampling
from testbed.worker.methods.federated.clients.slowness import Slowness
from testbed.worker.methods.federated.fleet import Fleet
from testbed.worker.methods.federated.local_client import LocalClient
from testbed.worker.methods.federated.secure_aggregation.secure import Secure
from testbed.worker.methods.federated.secure_aggregation.server import SecureFederation
from testbed.worker.methods.federated.secure_aggregation.vector import SecureVector
from testbed.worker.methods.federated.secure_aggregation.worker import SecureWorker
from testbed.worker.methods.federated.server_model import Federation
from testbed.worker.methods.parameter_server.bounds.baselines import Fixed
from testbed.worker.methods.parameter_server.client import Client
from testbed.worker.methods.parameter_server.membership.admission import Admission
from testbed.worker.methods.parameter_server.membership.clients import ConnectedClients
from testbed.worker.methods.parameter_server.messages.coder import Coder
from testbed.worker.methods.parameter_server.messages.decoders import Decoders
from testbed.worker.methods.parameter_server.messages.plan import Plan
from testbed.worker.methods.parameter_server.messages.schema import Schema
from testbed.worker.methods.parameter_server.messages.wire import Wire
from testbed.worker.methods.parameter_server.rounds.downlink import Downlink
from testbed.worker.methods.parameter_server.server import Server
from testbed.worker.methods.parameter_server.transport.connection import Connection
from testbed.worker.methods.parameter_server.transport.frames import Kind
from testbed.worker.methods.parameter_server.transport.streams import connect, send
from tests.unit.worker.recorded import Recorded, taken
from tests.unit.worker.server_net import HOST, KEY, PACE, PATIENCE_S, soon
from tests.waiting import in_background, joined

FEDAVG = Method(name="fedavg", server={}, learning_rate=0.1)
UP, DOWN = Plan(direction="up", payload="delta", codec="zstd"), Plan(direction="down", payload="delta", codec="raw")


class Points:
    """A workload, as far as clients ask for one."""

    computes = True

    def picked(self, numbers: Tensor) -> tuple[Tensor, Tensor]:
        generator = torch.Generator().manual_seed(3)
        return torch.randn(200, 4, generator=generator)[numbers], torch.randn(200, 2, generator=generator)[numbers]

    def loss(self, model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
        return nn.functional.mse_loss(model(batch[0]), batch[1])


class Kept(SecureWorker):
    """One that keeps what it would have sent in the clear."""

    link: Connection

    def clear(self, values: Sequence[Tensor], reference: Sequence[Tensor]) -> list[Tensor]:
        self.values = list(values)
        return super().clear(values, reference)


class Worker:
    """One client of each round, with all that it takes to run it."""

    def __init__(self, net: SecureNet, number: int, kind: type[Kept]) -> None:
        self.number, self.net, self.state = number, net, net.new_state()
        self.link = connect(HOST, net.admission.port, own=number, deadline_s=soon(), charge=_nothing)
        send(self.link, net.wire.hello(number), net.wire.expected(Kind.MODEL), deadline_s=soon(), pace=PACE)
        spec = SimpleNamespace(seed=0, batch_size=4, dilation=1.0)
        context = cast(WorkerContext, SimpleNamespace(spec=spec, clock=PhaseClock(), prepare=_nothing))
        workload = cast(NumberedWorkload, Points())
        local = LocalClient(context, workload, self.state, net.population, net.method, 1.0, Slowness())
        self.sequence = ClientSequence(number, self.state, net.population, net.method, local)
        self.secure: Kept | None = None
        if net.secure is not None:
            self.secure = kind(number, net.workers, net.secure, net.vector, self.state, 0)
            self.secure.link = self.link
        coders = Coder(net.wire.schema, UP), Coder(net.wire.schema, DOWN)
        given: Any = {
            "patience_s": PATIENCE_S,
            "clock": PhaseClock(),
            "stopwatch": Stopwatch(),
            "connection": self.link,
        }
        self.client = Client(
            *(number, self.state, net.wire, *coders, self.sequence),
            basis=Fixed().basis,
            exchanging=self.secure,
            **given,
        )
        self.error: RunError | None = None
        self._thread: threading.Thread | None = None

    def play(self, rounds: range, *, is_back: bool = False) -> None:
        """In a thread of its own, until it is put out or the rounds are over."""
        self._thread = in_background(lambda: self._play(rounds, is_back), f"of worker {self.number}")

    def join(self) -> None:
        if self._thread is not None:
            joined(self._thread)

    def _play(self, rounds: range, is_back: bool) -> None:
        try:
            if is_back:
                self.sequence.at(self.client.come_back())
            for round_ in rounds:
                self.client.begin(round_)
                self.sequence.step(None)
                self.client.end(round_)
        except RunError as error:
            self.error = error


class SecureNet:
    """
    Args:
        secure: None: sums are made in the clear.
        kinds: of workers that are not as they should be, by their numbers.
    """

    def __init__(
        self,
        secure: Secure | None,
        *,
        workers: int = 4,
        method: Method = FEDAVG,
        kinds: Mapping[int, type[Kept]] | None = None,
        message_s: float = PATIENCE_S,
    ) -> None:
        self.secure, self.workers, self.method = secure, workers, method
        counts = iter(range(200))
        self.parts = [[next(counts) for _ in range(6 + 2 * client)] for client in range(workers)]
        self.population = Population(self.parts, batch_size=4, epochs=2, seed=0)
        self.state = self.new_state()
        self.vector = SecureVector(Schema.of(self.state), self.state, self.population, method)
        self.wire = Wire(Schema.of(self.state), KEY, UP, DOWN, clients=workers, seed=0)
        self.admission = Admission(
            cast(Communicator, SimpleNamespace(address=HOST, charge=_nothing)), self.wire, hello_s=PATIENCE_S
        )
        self.workers_here = [Worker(self, number, (kinds or {}).get(number, Kept)) for number in range(workers)]
        self.connected = ConnectedClients(
            *(self.admission.let_all_in(PATIENCE_S), self.admission),
            message_s=message_s,
            training_s=0.0,
            clock=PhaseClock(),
            stopwatch=Stopwatch(),
        )
        self.server = self._server()
        self.notes: list[dict[str, Any]] = []

    def new_state(self) -> FederatedState:
        torch.manual_seed(2)
        model = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.Linear(6, 2))
        return FederatedState(model, self.workers, variates=False)

    def _server(self) -> Server:
        sampling, rule, record = Sampling(count=self.workers), self.method.rule(self.workers), Recorded()
        fleet = Fleet(
            *(self.population, self.method, sampling),
            workers=self.workers,
            placement="equal",
            stays=False,
            one_each=False,
            record=record,
        )
        aggregator = Federation(self.state, fleet, rule, None)
        if self.secure is not None:
            aggregator = SecureFederation(self.state, fleet, rule, self.secure, self.vector, self.workers, record)
        optimizer = torch.optim.SGD(self.state.parameters(), lr=1.0)
        model = aggregator.model(self.state, self.wire.schema, "delta", optimizer, lambda: self.connected.clients)
        schema, schedule, clock = self.wire.schema, Fixed(), PhaseClock()
        return Server(
            *(self.wire, Coder(schema, UP), Downlink(self.wire, Coder(schema, DOWN), schedule, model, lambda: 0.0)),
            *(model, self.connected, schedule),
            is_bounded=False,
            is_gated=False,
            aggregator=aggregator,
            decoders=Decoders(0, clock),
            clock=clock,
            step_s=None,
            record=record,
        )

    def play(self, rounds: int, begin: int = 0, back: Sequence[Worker] = ()) -> list[dict[str, Any]]:
        """Rounds of the server and of all its workers; the server's notes of their sums.

        Args:
            back: workers that have come back, and are let in.
        """
        numbers = range(begin, begin + rounds)
        for worker in self.workers_here:
            if worker.error is None:
                worker.play(numbers, is_back=worker in back)
        try:
            for number in numbers:
                self.server.begin(number)
                self.server.collect(number)
        except RunError:
            self.server.close()
            raise
        finally:
            for worker in self.workers_here:
                worker.join()
        self.notes = taken(self.server)
        return [note for note in self.notes if note["event"] == "secure_round"]

    def come_back(self, number: int) -> Worker:
        self.workers_here[number] = Worker(self, number, Kept)
        return self.workers_here[number]

    def learnt(self) -> dict[str, Tensor]:
        """The server's model."""
        return {name: value.detach().clone() for name, value in self.state.model.state_dict().items()}

    def close(self) -> None:
        self.server.close()
        for worker in self.workers_here:
            worker.client.close()


@contextmanager
def secure_net(secure: Secure | None, **given: Any) -> Iterator[SecureNet]:
    made = SecureNet(secure, **given)
    try:
        yield made
    finally:
        made.close()


def _nothing(_: object) -> None:
    pass
