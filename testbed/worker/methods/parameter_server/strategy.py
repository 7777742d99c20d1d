"""Rounds of a server and its clients, whatever clients do in between: what such strategies share."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, ClassVar

from compressors.base.compressor import Compressor
from testbed.core.errors import InputError, Left, RunError, raise_input_faults
from testbed.core.kinds import Part, Settings, Whole
from testbed.core.parameters import Count, Flag, Seconds, raise_all
from testbed.core.spec.topology import Topology
from testbed.worker.interfaces.strategy import StepStats, Strategy, WorkerContext
from testbed.worker.interfaces.workload import Batch, Workload, parameters_crc32
from testbed.worker.interfaces.workload_capabilities import HoldOut
from testbed.worker.methods.parameter_server.bounds.baselines import Fixed
from testbed.worker.methods.parameter_server.bounds.break_even import Gate
from testbed.worker.methods.parameter_server.bounds.default import usual_bound
from testbed.worker.methods.parameter_server.bounds.rounds import AnyBound, BoundSchedule
from testbed.worker.methods.parameter_server.checkpoint import lasting_server
from testbed.worker.methods.parameter_server.client import Client
from testbed.worker.methods.parameter_server.local_training import LocalTraining
from testbed.worker.methods.parameter_server.membership.assignment import ROOT, ServerAssignment, region_faults
from testbed.worker.methods.parameter_server.membership.departure import left_once_out
from testbed.worker.methods.parameter_server.messages.plan import Plan
from testbed.worker.methods.parameter_server.messages.plan_request import asked_plan, asked_plans, by_compressor
from testbed.worker.methods.parameter_server.messages.tensor_codecs import OfCompressor
from testbed.worker.methods.parameter_server.rounds.aggregator import Aggregator
from testbed.worker.methods.parameter_server.rounds.exchanges import Exchanging
from testbed.worker.methods.parameter_server.rounds.update_source import Training
from testbed.worker.methods.parameter_server.server import Server
from testbed.worker.methods.parameter_server.service import Service
from testbed.worker.methods.parameter_server.workload_faults import varying_codecs, workload_faults

_HELD_OUT_SEED = 1
_MAX_DECODERS = 64
_GATED_REGIONS = "region_servers=True gate: a gate learns nothing of links behind a region's server; use one of them"
_ALONE_IN_ROUNDS = (
    "group_rounds: a region has rounds of its own where a server of its own has them; use region_servers=true"
)
_GRADIENT_GROUPS = (
    "strategy.group_rounds: a region's model moves by what its clients have changed; use uplink.payload=delta or params"
)
_LASTING_REGIONS = (
    "region_servers=True checkpoint: regions' clients do not find a server that was started again; use one of them"
)

Direction = Annotated[Mapping[str, Any], Settings()]
GateOrFlag = Annotated[bool | Gate, Part((bool, Gate), "true, false, or a break_even.Gate")]
Decoders = Annotated[int, Whole(0, _MAX_DECODERS)]


class ServerStrategy(Strategy):
    """Rank 0 is the server, all others are its clients, or servers of regions between the two.

    Args:
        local_steps: Steps per client and round.
        uplink: Parameters of updates: strategy.uplink. codec=compressor is the run's compressor; sz3 and int8_zstd
            follow `bound`. feedback=auto is what the compressor wants, and true for those two.
        downlink: Parameters of models: strategy.downlink. No payload=grad.
        bound: Schedule of error bounds; null: by payload. Null is `Fixed` where parameters travel, otherwise
            `AdaptiveBound`.
        probe_samples: Held-out samples on which the server tries broadcasts. They are held out only where the schedule
            asks, and models follow bounds.
        round_timeout_s: Longest wait for a round's messages, each way. It also bounds their time in flight. Clients'
            training comes on top where a device says how long it takes; elsewhere it counts.
        gate: Send uncompressed where compression gains no time. A sender measures that, so two runs differ as their
            times do. Settings: a `testbed.worker.methods.parameter_server.bounds.break_even.Gate`.
        decoders: Threads that decode client messages; 0: the server's own. They decode while more arrives.
        region_servers: Each other region's lowest rank serves its workers. In regions of two or more workers but rank
            0's, so that a round crosses a region's links once each way
            (`testbed.worker.methods.parameter_server.region`). It trains on nothing, and its clients share its fate.
            Not with `gate`.
        group_rounds: Regional rounds per global one, with `region_servers`. A region's server averages its clients so
            many times before it sends the change (`testbed.worker.methods.parameter_server.regional_group`). Clients
            that rank 0 serves itself train alone for as long.
        checkpoint: Save the server's state, so that it can restart. It is saved before each model that is sent; clients
            wait `round_timeout_s` for the restart. Not with `region_servers`.
    """

    uses_collectives = False
    exchanges_models = True
    name: ClassVar[str]
    """By which a user asks for it."""

    def __init__(
        self,
        *,
        local_steps: Count = 10,
        uplink: Direction | None = None,
        downlink: Direction | None = None,
        bound: AnyBound | None = None,
        probe_samples: Count = 200,
        round_timeout_s: Seconds = 120.0,
        gate: GateOrFlag = False,
        decoders: Decoders = 0,
        region_servers: Flag = False,
        group_rounds: Count = 1,
        checkpoint: Flag = False,
    ) -> None:
        self._asked = {"up": dict(uplink or {}), "down": dict(downlink or {})}
        self.schedule: BoundSchedule = bound or usual_bound([way.get("payload") for way in self._asked.values()])
        raise_all(
            _ALONE_IN_ROUNDS if group_rounds != 1 and not region_servers else None,
            _GATED_REGIONS if region_servers and gate is not False else None,
            _LASTING_REGIONS if region_servers and checkpoint else None,
        )
        self.local_steps, self.probe_samples, self.round_timeout_s = local_steps, probe_samples, round_timeout_s
        self.gate, self.decoders = (Gate() if gate is True else gate or None), decoders
        self.region_servers, self.group_rounds, self.checkpoint = region_servers, group_rounds, checkpoint
        self._regional: ServerAssignment | None = None  # who serves whom, once that is known to go by regions

    def place(self, topology: Topology) -> None:
        if self.region_servers:
            self._regional = ServerAssignment.by_region(topology)

    def varying_codecs(self, compressor: Compressor) -> list[str]:
        return varying_codecs(asked_plans(self._asked, compressor, self.schedule)[0])

    @property
    def carries_compressor(self) -> bool:
        return any(by_compressor(one) for one in self._asked.values())

    def part(self, rank: int, world_size: int) -> tuple[int, int] | None:
        return (0, 1) if world_size == 1 else self._assignment(world_size).part(rank)

    def tolerates_loss_of(self, rank: int) -> bool:
        return rank > ROOT or self.checkpoint

    def can_rejoin(self, rank: int) -> bool:
        return self.tolerates_loss_of(rank) and not (self._regional and rank in self._regional.region_servers)

    def validate(self, compressor: Compressor, workload: Workload, world_size: int) -> Iterator[str]:
        name = f"strategy={self.name}"
        yield from (f"{name} {fault}" for fault in region_faults(self._regional))
        plans, against = asked_plans(self._asked, compressor, self.schedule)
        yield from (f"{name} {fault}" for fault in against)
        if self.group_rounds > 1 and "up" in plans and plans["up"].payload == "grad":
            yield f"{name} {_GRADIENT_GROUPS}"
        coder = plans["up"].coder if self.decoders and "up" in plans else None
        if isinstance(coder, OfCompressor):
            yield (
                f"{name} strategy.decoders={self.decoders}: what {type(coder.compressor).__name__} sends is decoded by"
                " one thread alone; use 0, or strategy.uplink with another codec"
            )
        if "down" in plans and self._probes(plans["down"]) and not isinstance(workload, HoldOut):
            yield (
                f"{name} strategy.bound: {type(self.schedule).__name__} tries models on samples that are held out, of"
                f" which {type(workload).__name__} has none; use another schedule"
            )
        yield from workload_faults(name, workload, plans, self.schedule)

    @left_once_out()
    def bind(self, context: WorkerContext) -> None:
        self._context, self._step = context, -1
        self._server: Server | None = None
        self._client: Client | None = None
        self._training: Training | None = None
        comm = context.comm
        if not comm.is_back:
            comm.require_equal(parameters_crc32(context.model), "the checksum of the initial parameters")
        if comm.world_size == 1 or not comm.networked:
            self._alone = LocalTraining(context, payload="params")
            return
        if not comm.address:
            raise RunError("rank 0 has no address at which clients could find the server")
        service = self._service()
        held_out = self._hold_out() if self._probes(service.down) else None  # whoever trains has to leave it out
        if comm.rank == ROOT and self.checkpoint:
            self._server, self._step = lasting_server(service, held_out, lambda: self._step)
        elif comm.rank == ROOT:
            if comm.is_back:
                raise RunError(
                    "rank 0 came back to nothing that it could go on from; that takes strategy.checkpoint=true"
                )
            self._server = service.server(held_out)
        elif comm.rank in service.assignment.region_servers:
            if comm.is_back:
                raise Left(f"rank {comm.rank}: came back, but its clients, whose server it was, left when it did")
            self._client = service.region_server()
        else:
            self._training = self._trains(service.up)
            self._client = service.client(self._training, self._exchanging())

    @left_once_out()
    def first_step(self) -> int:
        if self._client is not None and self._context.comm.is_back:
            self._step = self._client.come_back() * self._own_steps() - 1
        return self._step + 1

    @left_once_out()
    def step(self, batch: Batch, step: int) -> StepStats:
        self._step = step
        own_steps = self._own_steps()
        round_, place = divmod(step, own_steps)
        is_end = place == own_steps - 1
        if self._server is not None:
            if place == 0:
                self._server.begin(round_)
            if is_end:
                self._server.collect(round_)
            return StepStats(None)
        if self._client is None:
            return StepStats(self._alone.step(batch))
        if place == 0:
            self._client.begin(round_)
        loss = None if self._training is None else self._training.step(batch)
        if is_end:
            self._client.end(round_)
        return StepStats(loss, self._drawn())

    @left_once_out()
    def finish(self) -> None:
        """The round that has begun is ended, and all take over what the last one has come to."""
        rounds, left = divmod(self._step + 1, self._own_steps())
        if self._server is not None:
            if left:
                self._server.collect(rounds)
            self._server.send_last(rounds + bool(left))
        elif self._client is not None:
            if left:
                self._client.end(rounds)
            self._client.take_last(rounds + bool(left))

    def _own_steps(self) -> int:
        """Of a round of this rank's: several rounds of a region make one of rank 0's, and of clients that it serves."""
        rank = self._context.comm.rank
        assignment = self._assignment(self._context.world_size)
        is_regional = rank in assignment.region_servers or assignment.server_of[rank] != ROOT
        return self.local_steps if is_regional else self.local_steps * self.group_rounds

    def _service(self) -> Service:
        """Of this run."""
        context = self._context
        if self.region_servers and self._regional is None:
            self.place(context.spec.topology)
        raise_input_faults(region_faults(self._regional))
        plans = {
            direction: asked_plan(direction, self._asked[direction], context.compressor) for direction in ("up", "down")
        }
        if not any(plan.bounded for plan in plans.values()):
            self.schedule = Fixed()  # nothing asks it, and it never interferes
        return Service(
            context,
            plans["up"],
            plans["down"],
            self.schedule,
            gate=self.gate,
            decoders=self.decoders,
            local_steps=self._most_steps(),
            round_timeout_s=self.round_timeout_s,
            assignment=self._assignment(context.world_size),
            checkpoint=self.checkpoint,
            group_rounds=self.group_rounds,
            aggregator=self._aggregator,
        )

    def _most_steps(self) -> int:
        """Steps of a device that a client may take in a round."""
        return self.local_steps

    def _drawn(self) -> int | None:
        """Samples of the step, where clients do not train on the batch that is given."""
        return None

    def _trains(self, up: Plan) -> Training:
        """What a client's updates come from."""
        return LocalTraining(self._context, up.payload, importance=up.importance, local_steps=self._own_steps())

    def _exchanging(self) -> Exchanging | None:
        """What else a client and the server say to each other in a round."""
        return None

    def _aggregator(self) -> Aggregator:
        """What the server makes of them."""
        assignment = self._assignment(self._context.world_size)
        alone = self.local_steps * self.group_rounds * self._context.spec.batch_size

        def most_samples(client: int) -> int:
            """Of a region's server those of all its clients."""
            return alone * max(1, len(assignment.clients_of(client + 1)))

        return Aggregator(most_samples)

    def _assignment(self, world_size: int) -> ServerAssignment:
        """
        Raises:
            RunError: they go by regions, of which nobody has told.
        """
        if not self.region_servers:
            return ServerAssignment.flat(world_size)
        if self._regional is None:
            raise RunError("strategy.region_servers=true: it was not told where ranks are; call Strategy.place first")
        return self._regional

    def _probes(self, down: Plan) -> bool:
        return self.schedule.probes and down.bounded

    def _hold_out(self) -> Batch:
        workload = self._context.workload
        assert isinstance(workload, HoldOut), "another one is refused"
        try:
            return workload.hold_out(self.probe_samples, self._context.spec.seed + _HELD_OUT_SEED)
        except InputError as error:
            raise InputError(f"strategy.probe_samples={self.probe_samples}: {error}") from error
