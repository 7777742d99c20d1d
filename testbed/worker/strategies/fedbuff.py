"""Asynchronous federated learning: no worker waits for another, and the model moves whenever enough have sent."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Annotated, Any

from compressors.base.compressor import Compressor
from testbed.core.errors import RunError
from testbed.core.kinds import Choice, Settings, Whole
from testbed.core.parameters import Count, Fraction, NotNegative, Positive, Seconds, choice, raise_all
from testbed.worker.data.partitions import Dirichlet
from testbed.worker.interfaces.partition import AnyPartition
from testbed.worker.interfaces.strategy import StepStats, Strategy, WorkerContext
from testbed.worker.interfaces.workload import Batch, Workload, parameters_crc32
from testbed.worker.methods.federated.aggregation.fedbuff import FedBuff as Buffer
from testbed.worker.methods.federated.aggregation.methods import Method
from testbed.worker.methods.federated.aggregation.state import AssignedState
from testbed.worker.methods.federated.buffered_server import BufferedServer
from testbed.worker.methods.federated.buffered_worker import BufferedWorker
from testbed.worker.methods.federated.client_sequence import ClientSequence
from testbed.worker.methods.federated.clients.division import divided, division_faults
from testbed.worker.methods.federated.clients.population import Population
from testbed.worker.methods.federated.clients.slowness import Sigma, Slowness
from testbed.worker.methods.federated.dispatch import Dispatch
from testbed.worker.methods.federated.local_client import LocalClient
from testbed.worker.methods.federated.parameters import Speeds
from testbed.worker.methods.parameter_server.bounds.baselines import Fixed
from testbed.worker.methods.parameter_server.client import Client
from testbed.worker.methods.parameter_server.local_training import LocalTraining
from testbed.worker.methods.parameter_server.membership.admission import come, invite
from testbed.worker.methods.parameter_server.membership.assignment import ROOT
from testbed.worker.methods.parameter_server.membership.clients import ConnectedClients
from testbed.worker.methods.parameter_server.membership.departure import left_once_out
from testbed.worker.methods.parameter_server.membership.lanes import Lanes
from testbed.worker.methods.parameter_server.messages.coder import Coder
from testbed.worker.methods.parameter_server.messages.plan import LOSSLESS, Plan
from testbed.worker.methods.parameter_server.messages.plan_request import asked_plan, by_compressor
from testbed.worker.methods.parameter_server.messages.schema import Schema
from testbed.worker.methods.parameter_server.messages.wire import Wire
from testbed.worker.methods.parameter_server.strategy import Direction
from testbed.worker.methods.parameter_server.workload_faults import varying_codecs, workload_faults

METHODS = ("fedavg", "fedprox", "fedavgm", "fedadam", "fedyogi", "fedadagrad")
"""Methods whose rules need neither all clients of a round nor their steps, and whose clients keep nothing."""
_MAX_CLIENTS = 1_000_000
_PATIENCE = 3


class FedBuff(Strategy):
    """A server, and workers of which each runs one client at a time. A step is a version of the model.

    Nguyen et al., "Federated Learning with Buffered Asynchronous Aggregation", AISTATS 2022, arXiv:2106.06639. A worker
    that is free gets the newest model and one of the clients that nobody runs, trains it, and sends what it has learnt.
    The server adds it to a buffer, each by (1 + staleness)^-exponent, staleness being the versions that there were
    since the worker got its model; whenever `size` have come the model moves by their sum over `size`. As many clients
    are under way as there are workers. With `size` = workers and all equally fast nobody is late, and it is FedAvg in
    which clients count alike. Differs: `method` may make another step of the sum.

    Rank 0 is the server, the others are its workers. The server takes a step a version; a worker's step lasts until it
    has the version that the step makes, or a later one, in which case the next steps end at once, without a loss. After
    the last version workers end their clients, of which nothing comes any more. All ranks end with the same parameters.
    What is drawn is drawn from the seed and the order in which updates arrive; two runs differ as that does.

    Messages are those of `testbed.worker.strategies.parameter_server`. Models go down whole, bit for bit: each hangs on
    nothing that a worker has or others have. Who sends what cannot be used, or nothing in time, is out and ends alone,
    and its client is given to another; without any worker the run fails, and says why of each. One that is started
    again comes in with the next version. It leaves no checkpoint that a run could go on from.
    Cost: of each worker's link a model down and an update up a client. On the server 4 bytes a parameter and worker.

    Args:
        method: Federated method. See `testbed.worker.methods.federated.aggregation`.
        server: Parameters of the server's rule: strategy.server.
        mu: Weight of fedprox's term; null: 0.01.
        learning_rate: Learning rate of clients' SGD; null: workload's optimizer.
        momentum: Momentum of clients' SGD.
        size: Updates per version of the model.
        exponent: Exponent of 1 + staleness in an update's weight.
        clients: Number of clients; at least as many as workers.
        partition: Division of the samples; null: `Dirichlet`, alpha 0.3.
        local_epochs: Epochs per client.
        speeds: Relative speed of each worker; null: all 1. At 0.5 a client takes twice as long.
        straggler_sigma: Sigma of clients' lognormal slow-down, drawn each time. See
            `testbed.worker.methods.federated.clients.slowness`.
        uplink: Parameters of updates: as strategy.uplink, with payload=delta only. No codec that uses bounds, since
            these follow rounds.
        downlink: Codec of models: zstd or raw.
        round_timeout_s: Longest wait for a model, then for its update. A model may be in flight that long; the update's
            time includes the worker's training.

    Raises:
        ValueError: a parameter is not one of these.
    """

    name = "fedbuff"
    uses_collectives = False
    exchanges_models = True

    def __init__(
        self,
        *,
        method: Annotated[str, Choice(METHODS)] = "fedavg",
        server: Annotated[Mapping[str, Any], Settings()] | None = None,
        mu: NotNegative | None = None,
        learning_rate: Positive | None = 0.05,
        momentum: Fraction = 0.0,
        size: Count = 10,
        exponent: NotNegative = 0.5,
        clients: Annotated[int, Whole(1, _MAX_CLIENTS)] = 100,
        partition: AnyPartition | None = None,
        local_epochs: Count = 1,
        speeds: Speeds | None = None,
        straggler_sigma: Sigma = 0.0,
        uplink: Direction | None = None,
        downlink: Direction | None = None,
        round_timeout_s: Seconds = 120.0,
    ) -> None:
        self._uplink = {"payload": "delta"} | dict(uplink or {})
        self._downlink = {"codec": "raw"} | dict(downlink or {})
        raise_all(*_message_faults(self._uplink, self._downlink))
        self._method = Method(name=method, server=server or {}, mu=mu, learning_rate=learning_rate, momentum=momentum)
        self._new_buffer = lambda: Buffer(size=size, exponent=exponent, rule=self._method.rule(clients))
        self._new_buffer()  # which refuses what it does not know
        self.clients, self.partition = clients, Dirichlet() if partition is None else partition
        self.local_epochs, self.speeds, self.straggler_sigma = local_epochs, speeds, straggler_sigma
        self.round_timeout_s = round_timeout_s

    def varying_codecs(self, compressor: Compressor) -> list[str]:
        return varying_codecs(dict(zip(("up", "down"), self._plans(compressor), strict=True)))

    @property
    def carries_compressor(self) -> bool:
        return by_compressor(self._uplink)

    def part(self, rank: int, world_size: int) -> None:
        """Samples are clients'."""

    def tolerates_loss_of(self, rank: int) -> bool:
        return rank > ROOT

    can_rejoin = tolerates_loss_of

    def validate(self, compressor: Compressor, workload: Workload, world_size: int) -> Iterator[str]:
        name, workers = f"strategy={self.name}", world_size - 1
        yield from (f"{name} {fault}" for fault in self._codec_faults(compressor))
        if workers < 1:
            yield f"{name}: a server needs at least one worker; use workers=2 or more"
            return
        if self.speeds is not None and len(self.speeds) != workers:
            yield f"{name} strategy.speeds: {len(self.speeds)} for {workers} workers; give one for each but the server"
        if self.clients < workers:
            yield f"{name} strategy.clients={self.clients}: {workers} workers run one each; use more clients"
        yield from division_faults(name, workload, self.clients, self.partition)
        yield from workload_faults(name, workload, {}, None)

    @left_once_out()
    def bind(self, context: WorkerContext) -> None:
        self._server: BufferedServer | None = None
        self._worker: BufferedWorker | None = None
        comm = context.comm
        if comm.world_size == 1 or not comm.networked:
            self._alone = LocalTraining(context, payload="params")
            return
        if not comm.is_back:
            comm.require_equal(parameters_crc32(context.model), "the checksum of the initial parameters")
        if not comm.address:
            raise RunError("rank 0 has no address at which workers could find the server")
        state = AssignedState(context.model)
        self._context = dataclasses.replace(context, model=state)
        if comm.rank != ROOT:
            self._worker = self._new_worker(state)
        elif comm.is_back:
            raise RunError("rank 0 came back to nothing that it could go on from: strategy=fedbuff leaves nothing")
        else:
            self._server = self._new_server(state)

    @left_once_out()
    def first_step(self) -> int:
        return self._worker.receive() if self._worker is not None and self._context.comm.is_back else 0

    @left_once_out()
    def step(self, batch: Batch, step: int) -> StepStats:
        if self._server is not None:
            self._server.advance()
            return StepStats(None)
        if self._worker is None:
            return StepStats(self._alone.step(batch))
        return StepStats(*self._worker.advance(step + 1))

    @left_once_out()
    def finish(self) -> None:
        if self._server is not None:
            self._server.finish()
        elif self._worker is not None:
            self._worker.close()

    def _new_server(self, state: AssignedState) -> BufferedServer:
        context, comm, clock = self._context, self._context.comm, self._context.clock
        wait_s, message_s = self._wall_s(context.spec.timeout_s), self._wall_s(self.round_timeout_s)
        wire, admission = invite(comm, self._wire, wait_s)
        connected = ConnectedClients(
            admission.let_all_in(wait_s),
            admission,
            message_s=message_s,
            training_s=0.0,
            clock=clock,
            stopwatch=comm.stopwatch,
        )
        up, down = self._plans(context.compressor)
        return BufferedServer(
            wire,
            Coder(wire.schema, up),
            Coder(wire.schema, down),
            state,
            self._new_buffer(),
            Dispatch(self.clients, context.spec.seed),
            self._population(),
            Lanes(connected, wait_s=message_s, clock=clock, stopwatch=comm.stopwatch),
            clock,
            alpha=Fixed().alpha,
            record=context.record,
        )

    def _new_worker(self, state: AssignedState) -> BufferedWorker:
        context, comm, number = self._context, self._context.comm, self._context.comm.rank - 1
        population, workload, seed = self._population(), context.workload, context.spec.seed
        speed = 1.0 if self.speeds is None else self.speeds[number]
        slowness = Slowness(sigma=self.straggler_sigma, seed=seed)
        local = LocalClient(context, workload, state, population, self._method, speed, slowness)
        sequence = ClientSequence(number, state, population, self._method, local)
        wire, connection = come(comm, self._wire, self._wall_s(context.spec.timeout_s))
        up, down = self._plans(context.compressor)
        client = Client(
            number,
            state,
            wire,
            Coder(wire.schema, up),
            Coder(wire.schema, down),
            sequence,
            basis=Fixed().basis,
            connection=connection,
            patience_s=_PATIENCE * self._wall_s(self.round_timeout_s),
            clock=context.clock,
            stopwatch=comm.stopwatch,
        )
        return BufferedWorker(client, state, sequence)

    def _wire(self, key: bytes) -> Wire:
        context = self._context
        schema, workers = Schema.of(context.model), context.comm.world_size - 1
        return Wire(schema, key, *self._plans(context.compressor), clients=workers, seed=context.spec.seed)

    def _plans(self, compressor: Compressor) -> tuple[Plan, Plan]:
        """Up and down; those of a sender are its own."""
        up = asked_plan("up", self._uplink, compressor)
        return up, Plan(direction="down", payload="params", codec=self._downlink["codec"])

    def _codec_faults(self, compressor: Compressor) -> Iterator[str]:
        try:
            plan = asked_plan("up", self._uplink, compressor)
        except (ValueError, TypeError) as error:
            instead = "use another compressor, or strategy.uplink with another codec"
            yield from (f"strategy.uplink.{line}; {instead}" for line in str(error).splitlines())
            return
        if plan.bounded:
            yield (
                f"strategy.uplink.codec={plan.codec}: bounds follow rounds that all take part in, and here there are"
                " none; use another compressor, or strategy.uplink with another codec, as fp16, zstd or raw"
            )

    def _population(self) -> Population:
        return divided(
            self._context.workload,
            self._context.spec,
            self._context.model,
            clients=self.clients,
            partition=self.partition,
            local_epochs=self.local_epochs,
            each_trains=True,
        )

    def _wall_s(self, seconds: float) -> float:
        return seconds * self._context.spec.dilation


def _message_faults(uplink: Mapping[str, Any], downlink: Mapping[str, Any]) -> Iterator[str | None]:
    if uplink["payload"] != "delta":
        yield f"uplink.payload={uplink['payload']}: must be delta; what clients have changed is what the buffer adds up"
    yield from (f"downlink.{name}: unknown; known: codec" for name in downlink if name != "codec")
    yield choice("downlink.codec", downlink["codec"], LOSSLESS)
