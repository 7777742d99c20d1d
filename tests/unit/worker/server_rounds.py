"""A server and its clients over loopback, all in one thread: what they send fits into what the kernel keeps."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import deepcopy
from types import SimpleNamespace
from typing import Any, cast

import torch
from torch import Tensor, nn

from compressors.none import Uncompressed
from testbed.worker.communication.communicator import Communicator
from testbed.worker.device.clock import PhaseClock
from testbed.worker.device.stopwatch import Stopwatch
from testbed.worker.interfaces.strategy import WorkerContext
from testbed.worker.methods.parameter_server.bounds.baselines import Fixed
from testbed.worker.methods.parameter_server.bounds.break_even import Gate
from testbed.worker.methods.parameter_server.bounds.rounds import BoundSchedule
from testbed.worker.methods.parameter_server.client import Client
from testbed.worker.methods.parameter_server.local_training import LocalTraining
from testbed.worker.methods.parameter_server.membership.admission import Admission
from testbed.worker.methods.parameter_server.membership.clients import ConnectedClients
from testbed.worker.methods.parameter_server.messages.coder import Coder
from testbed.worker.methods.parameter_server.messages.decoders import Decoders
from testbed.worker.methods.parameter_server.messages.gated_coder import GatedCoder, can_gate
from testbed.worker.methods.parameter_server.messages.plan import Plan
from testbed.worker.methods.parameter_server.messages.plan_request import asked_plan
from testbed.worker.methods.parameter_server.messages.schema import Schema
from testbed.worker.methods.parameter_server.messages.wire import Wire
from testbed.worker.methods.parameter_server.region import Region, RegionServer
from testbed.worker.methods.parameter_server.regional_group import Group, GroupServer
from testbed.worker.methods.parameter_server.rounds.aggregator import Aggregator
from testbed.worker.methods.parameter_server.rounds.downlink import Downlink
from testbed.worker.methods.parameter_server.rounds.global_model import GlobalModel, Loss
from testbed.worker.methods.parameter_server.server import Server
from testbed.worker.methods.parameter_server.transport.frames import Kind
from testbed.worker.methods.parameter_server.transport.streams import Connection, connect, send
from tests.unit.worker.recorded import Recorded, taken
from tests.unit.worker.server_models import bits
from tests.unit.worker.server_net import HOST, KEY, PACE, PATIENCE_S, soon

WIDTH = 48
SZ3: dict[str, Any] = {"codec": "sz3", "cutoff": 100}
PARAMS: dict[str, Any] = {"payload": "params"}


class Small(nn.Module):
    """With a weight that is large enough to travel lossy, and buffers that are averaged and that are not."""

    def __init__(self, seed: int = 1) -> None:
        super().__init__()
        torch.manual_seed(seed)
        self.norm = nn.BatchNorm1d(WIDTH)
        self.linear = nn.Linear(WIDTH, WIDTH)

    def forward(self, inputs: Tensor) -> Tensor:
        return cast(Tensor, self.linear(self.norm(inputs)))


class Faint(Small):
    """With another weight beside it, twice as large, whose gradients are a quarter: a sixteenth in squares."""

    def __init__(self, seed: int = 1) -> None:
        super().__init__(seed)
        self.faint = nn.Linear(WIDTH, 2 * WIDTH, bias=False)

    def forward(self, inputs: Tensor) -> Tensor:
        normed = self.norm(inputs)
        return cast(Tensor, self.linear(normed) + 0.25 * self.faint(normed).view(-1, 2, WIDTH).sum(1))


class Regression:
    """A workload, as far as training asks for one."""

    def loss(self, model: nn.Module, batch: Tensor) -> Tensor:
        return (model(batch) - batch.flip(1)).square().mean()


def batch_of(client: int, step: int, samples: int = 8) -> Tensor:
    return torch.randn(samples, WIDTH, generator=torch.Generator().manual_seed(1000 * client + step))


def sgd(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)


class Trainer(Client):
    """A client that trains, as all do but a region's server."""

    _training: LocalTraining


class Rounds:
    """A server of `clients` clients, and all that passes between them.

    Args:
        served: by the number of a client that serves a region its clients' numbers.
        group_rounds: of a region, for each of the server's; with `round`, 1.
    """

    def __init__(
        self,
        *,
        clients: int = 2,
        served: Mapping[int, Sequence[int]] | None = None,
        up: Mapping[str, Any] | None = None,
        down: Mapping[str, Any] | None = None,
        schedule: BoundSchedule | None = None,
        probe: Loss | None = None,
        message_s: float = PATIENCE_S,
        gate: Gate | None = None,
        decoders: int = 0,
        dtype: torch.dtype = torch.float32,
        model: type[Small] = Small,
        group_rounds: int = 1,
    ) -> None:
        self.group_rounds = group_rounds
        self._recorded = Recorded()
        """Events of the server, and of those that take its place."""
        self.dtype, self.gate, self._kind = dtype, gate, model
        served = served or {}
        self._server_of = {client: server for server, members in served.items() for client in members}
        self.trainers = [number for number in range(clients) if number not in served]
        self.schedule = Fixed() if schedule is None else schedule
        self._first_schedule = deepcopy(self.schedule)
        self._probe, self._message_s, self._decoders = probe, message_s, decoders
        self.models = [model().to(dtype) for _ in range(clients + 1)]
        """The server's, then the clients'."""
        self.optimizers = [sgd(model) for model in self.models]
        self._given = {"up": dict(up or {}), "down": dict(down or {})}
        plans = self._plans()
        self.wire = Wire(Schema.of(self.models[0]), KEY, plans["up"], plans["down"], clients=clients, seed=0)
        here = cast(Communicator, SimpleNamespace(address=HOST, charge=_nothing))
        own = [number for number in range(clients) if number not in self._server_of]
        self.admission = Admission(here, self.wire, hello_s=PATIENCE_S, clients=own)
        self.admissions = {
            server: Admission(here, self.wire, hello_s=PATIENCE_S, clients=served[server]) for server in served
        }
        ours = {number: self._knock(number) for number in range(clients)}
        theirs = self.admission.let_all_in(PATIENCE_S)
        self.clients = [self._client(number, ours[number]) for number in range(clients)]
        self.regions = {number: cast(RegionServer, self.clients[number]) for number in served}
        """Of the clients those that serve a region; they have no training."""
        self.connections = ours
        self.server = self._server(theirs)

    def forget_server(self) -> None:
        """What a new process knows in its place."""
        self.schedule, self.models[0] = deepcopy(self._first_schedule), Small(seed=5).to(self.dtype)
        self.optimizers[0] = sgd(self.models[0])

    def new_server(self, admission: Admission) -> Server:
        """That has no client yet."""
        self.admission = admission
        self.server = self._server({})
        return self.server

    def _server(self, connections: dict[int, Connection]) -> Server:
        plans, wire, clock, record = self._plans(), self.wire, PhaseClock(), self._recorded
        self.model = GlobalModel(self.models[0], wire.schema, plans["up"].payload, self.optimizers[0])
        probing = self.loss if self._probe is None else self._probe
        self.downlink = Downlink(wire, self._sending(plans["down"], record), self.schedule, self.model, probing)
        return Server(
            wire,
            Coder(wire.schema, plans["up"]),
            self.downlink,
            self.model,
            self._connected(connections, self.admission),
            self.schedule,
            is_bounded=plans["up"].bounded or plans["down"].bounded,
            is_gated=self.gate is not None,
            aggregator=Aggregator(),
            decoders=Decoders(self._decoders, PhaseClock()),
            clock=clock,
            step_s=None,
            record=record,
        )

    def loss(self) -> float:
        """Of the server's model, on samples of nobody."""
        with torch.no_grad():
            return float(Regression().loss(self.models[0].eval(), batch_of(99, 0)))

    def round(self, number: int, *, steps: int = 1, clients: Sequence[int] | None = None) -> dict[str, Any]:
        """What the server notes of it.

        Args:
            clients: those that take part; the others do not even read what they are sent.
        """
        self.server.begin(number)
        taking = [self.clients[one] for one in (range(len(self.clients)) if clients is None else clients)]
        for client in taking:
            if client.number in self.regions:
                client.begin(number)
        for client in taking:
            if client.number not in self.regions:
                client.begin(number)
                self.train(client, range(number * steps, (number + 1) * steps))
                client.end(number)
        for client in taking:
            if client.number in self.regions:
                client.end(number)
        self.server.collect(number)
        (note,) = (note for note in taken(self.server) if note["event"] == "round")
        return note

    def train(self, client: Trainer, steps: Sequence[int]) -> None:
        """On the same batches whoever serves it."""
        for step in steps:
            client._training.step(batch_of(self.trainers.index(client.number), step))

    def close(self) -> None:
        self.server.close()
        for client in self.clients:
            client.close()

    def _plans(self) -> dict[str, Any]:
        return {direction: asked_plan(direction, self._given[direction], Uncompressed()) for direction in self._given}

    def come_back(self, number: int) -> Trainer:
        """A new process's client of this number, which knows nothing but how to say hello; the old one is dead."""
        self.clients[number].close()
        self.models[number + 1] = self._kind(seed=7).to(self.dtype)
        self.optimizers[number + 1] = sgd(self.models[number + 1])
        self.clients[number] = self._client(number, self._knock(number))
        return self.clients[number]

    def _sending(self, plan: Plan, record: Recorded) -> Coder:
        if self.gate is None or not can_gate(plan):
            return Coder(self.wire.schema, plan)
        return GatedCoder(self.wire.schema, plan, deepcopy(self.gate), dilation=1.0, record=record)

    def _knock(self, number: int) -> Connection:
        server = self._server_of.get(number)
        admission = self.admission if server is None else self.admissions[server]
        connection = connect(HOST, admission.port, own=number, deadline_s=soon(), charge=_nothing)
        send(connection, self.wire.hello(number), self.wire.expected(Kind.MODEL), deadline_s=soon(), pace=PACE)
        return connection

    def _connected(self, connections: dict[int, Connection], admission: Admission) -> ConnectedClients:
        return ConnectedClients(
            *(connections, admission),
            message_s=self._message_s,
            training_s=0.0,
            clock=PhaseClock(),
            stopwatch=Stopwatch(),
        )

    def _client(self, number: int, connection: Connection) -> Trainer:
        plans = self._plans()
        given: Any = {
            "basis": self.schedule.basis,
            "connection": connection,
            "patience_s": PATIENCE_S,
            "clock": PhaseClock(),
            "stopwatch": Stopwatch(),
        }
        schema = self.wire.schema
        own = (
            number,
            self.models[number + 1],
            self.wire,
            self._sending(plans["up"], Recorded()),
            Coder(schema, plans["down"]),
        )
        if number in self.admissions and self.group_rounds > 1:
            group = self._group(number)
            return cast(Trainer, GroupServer(group, self.group_rounds, *own, **given, record=Recorded()))
        if number in self.admissions:
            return cast(Trainer, RegionServer(self._region(number), *own, **given, record=Recorded()))
        return Trainer(
            *own, LocalTraining(self._context(number), plans["up"].payload, importance=plans["up"].importance), **given
        )

    def _region(self, number: int) -> Region:
        parts, named = self._of_region(number)
        return Region(*parts, **named)

    def _group(self, number: int) -> Group:
        parts, named = self._of_region(number)
        own, payload = self.models[number + 1], self._plans()["up"].payload
        model = GlobalModel(own, self.wire.schema, payload, self.optimizers[number + 1])
        return Group(*parts, **named, basis=self.schedule.basis, model=model)

    def _of_region(self, number: int) -> tuple[Any, Any]:
        admission, plans, clock = self.admissions[number], self._plans(), PhaseClock()
        connected, up = (
            self._connected(admission.let_all_in(PATIENCE_S), admission),
            Coder(self.wire.schema, plans["up"]),
        )
        parts = self.wire, up, plans["down"], connected, Decoders(0, clock)
        return parts, {"clock": clock, "name": f"region {number}"}

    def _context(self, number: int) -> WorkerContext:
        context = SimpleNamespace(
            spec=SimpleNamespace(batch_size=8),
            workload=Regression(),
            model=self.models[number + 1],
            optimizer=self.optimizers[number + 1],
            clock=PhaseClock(),
        )
        return cast(WorkerContext, context)


def _nothing(sent_bytes: int) -> None:
    pass


@contextmanager
def rounds(**given: Any) -> Iterator[Rounds]:
    made = Rounds(**given)
    try:
        yield made
    finally:
        made.close()


def agree(played: Rounds) -> None:
    """Clients hold the bits that the server believes they hold."""
    held = bits(played.downlink.reference)
    assert all(bits(client.reference) == held for client in played.clients)
