"""Either end of a parameter server, made of what a run asks for."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from typing import Any

import torch

from testbed.worker.interfaces.strategy import WorkerContext
from testbed.worker.interfaces.workload import Batch
from testbed.worker.methods.parameter_server.bounds.break_even import Gate
from testbed.worker.methods.parameter_server.bounds.rounds import BoundSchedule
from testbed.worker.methods.parameter_server.client import Client
from testbed.worker.methods.parameter_server.membership.addresses import put_down
from testbed.worker.methods.parameter_server.membership.admission import Admission, come, invite, invite_again
from testbed.worker.methods.parameter_server.membership.assignment import ROOT, ServerAssignment
from testbed.worker.methods.parameter_server.membership.clients import ConnectedClients
from testbed.worker.methods.parameter_server.membership.reconnection import come_to_stay
from testbed.worker.methods.parameter_server.messages.coder import Coder
from testbed.worker.methods.parameter_server.messages.decoders import Decoders
from testbed.worker.methods.parameter_server.messages.gated_coder import GatedCoder, can_gate
from testbed.worker.methods.parameter_server.messages.plan import Plan
from testbed.worker.methods.parameter_server.messages.schema import Schema
from testbed.worker.methods.parameter_server.messages.wire import Wire
from testbed.worker.methods.parameter_server.region import Region, RegionServer
from testbed.worker.methods.parameter_server.regional_group import Group, GroupServer
from testbed.worker.methods.parameter_server.rounds.aggregator import Aggregator
from testbed.worker.methods.parameter_server.rounds.downlink import Downlink
from testbed.worker.methods.parameter_server.rounds.exchanges import Exchanging
from testbed.worker.methods.parameter_server.rounds.global_model import GlobalModel, Loss
from testbed.worker.methods.parameter_server.rounds.update_source import Source
from testbed.worker.methods.parameter_server.server import Server
from testbed.worker.methods.parameter_server.transport.connection import Connection

_PATIENCE = 3


@dataclass(frozen=True)
class Service:
    """What all ranks know of it. Parameters are those of the strategy."""

    context: WorkerContext
    up: Plan
    down: Plan
    schedule: BoundSchedule
    _: KW_ONLY
    gate: Gate | None
    decoders: int
    local_steps: int
    round_timeout_s: float
    assignment: ServerAssignment
    checkpoint: bool = False
    group_rounds: int = 1
    """Of a region, for each of rank 0's."""
    aggregator: Callable[[], Aggregator] = Aggregator

    def server(self, held_out: Batch, round_: int | None = None) -> Server:
        """With all its clients, who are let in; none yet of a server that takes the place of another.

        Args:
            held_out: what models are tried on.
            round_: that the other one had begun.
        """
        context, wait_s = self.context, self._wall_s(self.context.spec.timeout_s)
        if round_ is None:
            wire, admission = invite(context.comm, self._wire, wait_s, self.assignment.clients_of(ROOT))
            connections = admission.let_all_in(wait_s)
        else:
            wire, admission = invite_again(context.comm, self._wire, round_, wait_s)
            connections = {}
        connected = self._connected(admission, connections, self.group_rounds * self._training_s() + self._relays_s())
        aggregator = self.aggregator()
        model = aggregator.model(
            context.model, wire.schema, self.up.payload, context.optimizer, lambda: connected.clients
        )
        down, loss = self._sending(wire.schema, self.down), self._loss_of(held_out)
        probe = down.counted(loss) if isinstance(down, GatedCoder) else loss
        return Server(
            wire,
            Coder(wire.schema, self.up),
            Downlink(wire, down, self.schedule, model, probe),
            model,
            connected,
            self.schedule,
            is_bounded=self.up.bounded or self.down.bounded,
            is_gated=self.gate is not None,
            aggregator=aggregator,
            decoders=Decoders(self.decoders, context.clock),
            clock=context.clock,
            step_s=context.clock.times.optimizer_s if self.up.payload == "grad" else None,
            record=context.record,
        )

    def region_server(self) -> RegionServer | GroupServer:
        """One that has said hello to rank 0, with all clients of its region, who are let in."""
        context, comm, wait_s = self.context, self.context.comm, self._wall_s(self.context.spec.timeout_s)
        wire, connection = come(comm, self._wire, wait_s)
        own, address = self.assignment.clients_of(comm.rank), connection.address
        admission = Admission(comm, wire, hello_s=wait_s, address=address, clients=own)
        put_down(comm, wire.key, address, admission.port)
        connected, decoders = (
            self._connected(admission, admission.let_all_in(wait_s), self._training_s()),
            Decoders(self.decoders, context.clock),
        )
        parts: Any = (wire, Coder(wire.schema, copy.deepcopy(self.up)), self.down, connected, decoders)
        named: Any = {"clock": context.clock, "name": context.spec.topology.nodes[comm.rank].region}
        named["aggregator"] = Aggregator(lambda _: self.local_steps * context.spec.batch_size)
        coders = self._sending(wire.schema, self.up), Coder(wire.schema, self.down)
        of_client: Any = {
            "basis": self.schedule.basis,
            "connection": connection,
            "patience_s": self._patience_s(),
            "clock": context.clock,
            "stopwatch": comm.stopwatch,
            "record": context.record,
        }
        own_parts = comm.rank - 1, context.model, wire, *coders
        if self.group_rounds == 1:
            return RegionServer(Region(*parts, **named), *own_parts, **of_client)
        model = GlobalModel(context.model, wire.schema, self.up.payload, context.optimizer)
        group = Group(*parts, **named, basis=self.schedule.basis, model=model)
        return GroupServer(group, self.group_rounds, *own_parts, **of_client)

    def client(self, training: Source, exchanging: Exchanging | None = None) -> Client:
        """One that has said hello."""
        context = self.context
        wait_s, reconnection = self._wall_s(context.spec.timeout_s), None
        if self.checkpoint:
            outage_s = self._wall_s(self.round_timeout_s)
            wire, connection, reconnection = come_to_stay(context.comm, self._wire, wait_s, outage_s)
        else:
            wire, connection = come(context.comm, self._wire, wait_s, self.assignment.server_of[context.comm.rank])
        return Client(
            context.comm.rank - 1,
            context.model,
            wire,
            self._sending(wire.schema, self.up),
            Coder(wire.schema, self.down),
            training,
            basis=self.schedule.basis,
            connection=connection,
            patience_s=self._patience_s(),
            clock=context.clock,
            stopwatch=context.comm.stopwatch,
            reconnection=reconnection,
            exchanging=exchanging,
        )

    def _wire(self, key: bytes) -> Wire:
        context = self.context
        schema, clients = Schema.of(context.model), context.comm.world_size - 1
        return Wire(schema, key, self.up, self.down, clients=clients, seed=context.spec.seed)

    def _sending(self, schema: Schema, plan: Plan) -> Coder:
        """Of whoever sends by `plan`."""
        if self.gate is None or not can_gate(plan):
            return Coder(schema, plan)
        context = self.context
        return GatedCoder(schema, plan, copy.deepcopy(self.gate), dilation=context.spec.dilation, record=context.record)

    def _loss_of(self, batch: Batch) -> Loss:
        """Of the model as it is, in evaluation mode."""
        model, workload = self.context.model, self.context.workload

        def loss() -> float:
            model.eval()
            with torch.no_grad():
                found = float(workload.loss(model, batch))
            model.train()
            return found

        return loss

    def _connected(
        self, admission: Admission, connections: dict[int, Connection], training_s: float
    ) -> ConnectedClients:
        return ConnectedClients(
            connections,
            admission,
            message_s=self._wall_s(self.round_timeout_s),
            training_s=training_s,
            clock=self.context.clock,
            stopwatch=self.context.comm.stopwatch,
        )

    def _patience_s(self) -> float:
        training_s = self.group_rounds * self._training_s()
        return _PATIENCE * (self._wall_s(self.round_timeout_s) + training_s + self._relays_s())

    def _relays_s(self) -> float:
        """Wall seconds that rank 0 waits for a region longer than for a client of its own: a message each way, in each
        round of the region."""
        return 2 * self.group_rounds * self._wall_s(self.round_timeout_s) if self.assignment.region_servers else 0.0

    def _training_s(self) -> float:
        """Wall seconds of a client's training in a round; 0 where no device says how long it takes."""
        profile = self.context.clock.times.profile
        step_s = 0.0 if profile is None else profile.forward_s + profile.backward_s + profile.optimizer_s
        return self._wall_s(self.local_steps * step_s)

    def _wall_s(self, seconds: float) -> float:
        return seconds * self.context.spec.dilation
