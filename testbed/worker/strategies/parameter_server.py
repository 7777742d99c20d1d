from __future__ import annotations

import copy
import os
import time
from collections.abc import Iterator, Mapping
from typing import Any

import torch

from compressors.base import Compressor
from testbed.core import parameter_faults
from testbed.core.bound_baselines import Fixed
from testbed.core.bound_rounds import BoundSchedule
from testbed.core.bound_schedules import AdaptiveBound
from testbed.core.break_even import Gate
from testbed.core.errors import RunError
from testbed.core.frames import Kind
from testbed.worker.server.asked import asked_plan
from testbed.worker.server.client import Client
from testbed.worker.server.codecs import OfCompressor
from testbed.worker.server.gated import GatedCoder, can_gate
from testbed.worker.server.plan import Plan
from testbed.worker.server.schema import Schema
from testbed.worker.server.server import Server
from testbed.worker.server.streams import Connection, Listener, Pace, connect, send
from testbed.worker.server.tensors import Coder
from testbed.worker.server.wire import Wire
from testbed.worker.strategy import StepStats, Strategy, WorkerContext
from testbed.worker.workload import Batch, Workload, parameters_crc32

KEY_BYTES = 32
_NO_PACE = Pace(least_bytes_s=0.0, window_s=60.0)
"""Links are as slow as a run asks for; who is late is told by the deadline."""
_PROBE_SEED = 1
MOST_DECODERS = 64


class ParameterServer(Strategy):
    """Rounds of a server and its clients: all get the server's model, take `local_steps` steps by themselves, and send
    what came of it, of which the server makes the mean, weighted by samples.

    McMahan et al., "Communication-Efficient Learning of Deep Networks from Decentralized Data", AISTATS 2017,
    arXiv:1602.05629 (FedAvg), with all clients in each round; with one local step and SGD it is data parallelism, the
    mean of parameters being theirs after the mean gradient. Error-bounded compression of what is sent is that of
    `testbed.core.bound_schedules`. Differs from the paper: a client's optimizer goes on from round to round, with its
    momenta, where the paper has none.

    Rank 0 is the server and trains on nothing; ranks 1 and up are clients, and the data are theirs. Both ends keep what
    was decoded, never what was encoded, so that they agree on what a difference hangs on; the first broadcast is
    lossless. Messages are frames over TCP (`testbed.core.frames`), one a round, direction and client, with a keyed code
    over each. Who sends what cannot be used, or nothing in time, is out, and the round goes on with the rest; without
    any client the run fails, and says why of each.

    What is evaluated is what the server has averaged last. Steps after the last whole round are averaged at the end,
    after the last evaluation. All ranks end with the same parameters, those of a last broadcast.
    In a partition it waits: one longer than `round_timeout_s` puts the clients behind it out.
    Cost: of each client's link the model down and an update up a round, so of the server's the clients' sum, each way.
    Not simulated, and `dilation=auto` does not reckon with what is sent.

    Args:
        local_steps: of a client in a round.
        uplink: how updates travel, as of `testbed.worker.server.plan.Plan`: payload (params or delta), codec,
            algorithm, cutoff, dither, feedback, lossless. codec=compressor is the run's compressor; sz3 and int8_zstd
            go by `bound`. feedback=auto is what the run's compressor wants.
        downlink: how models travel, likewise.
        bound: the schedule of error bounds, given as `{_target_: …}`.
        probe_samples: training samples on which the server tries a broadcast before it sends it, if the schedule asks.
        round_timeout_s: emulated seconds that a round's messages are waited for, or may be under way, each way.
        gate: whether what compression would bring no faster travels raw, by what a sender measures; or a
            `testbed.core.break_even.Gate`, given as `{_target_: …}`. Two runs then differ as their times do.
        decoders: threads with which the server decodes what clients send while more of it arrives; 0: its only one.

    Raises:
        ValueError: a parameter is not one of these.
    """

    def __init__(
        self,
        *,
        local_steps: int = 10,
        uplink: Mapping[str, Any] | None = None,
        downlink: Mapping[str, Any] | None = None,
        bound: BoundSchedule | None = None,
        probe_samples: int = 200,
        round_timeout_s: float = 120.0,
        gate: bool | Gate = False,
        decoders: int = 0,
    ) -> None:
        self.schedule: BoundSchedule = AdaptiveBound() if bound is None else bound
        self._asked = {"up": dict(uplink or {}), "down": dict(downlink or {})}
        parameter_faults.raise_all(
            parameter_faults.whole("local_steps", local_steps, 1),
            parameter_faults.whole("probe_samples", probe_samples, 1),
            parameter_faults.number("round_timeout_s", round_timeout_s, above=0, below=float("inf")),
            parameter_faults.whole("decoders", decoders, 0, MOST_DECODERS),
            None if isinstance(gate, bool | Gate) else f"gate={gate!r}: must be true, false, or a break_even.Gate",
            None if hasattr(self.schedule, "client_alphas") else f"bound={bound!r}: must be a schedule of bounds",
        )
        self.local_steps, self.probe_samples, self.round_timeout_s = local_steps, probe_samples, round_timeout_s
        self.gate, self.decoders = (Gate() if gate is True else gate or None), decoders

    def part(self, rank: int, world_size: int) -> tuple[int, int] | None:
        if world_size == 1:
            return 0, 1
        return (rank - 1, world_size - 1) if rank else None

    def faults(self, compressor: Compressor, workload: Workload, world_size: int) -> Iterator[str]:
        if not workload.computes:
            yield f"strategy=parameter_server: {type(workload).__name__} has no parameters of its own to send"
        for direction, named in (("up", "uplink"), ("down", "downlink")):
            try:
                plan = asked_plan(direction, self._asked[direction], compressor)
                if direction == "up" and self.decoders and isinstance(plan.coder, OfCompressor):
                    codec = type(plan.coder.compressor).__name__
                    raise ValueError(
                        f"codec={codec}: is decoded by one thread alone, strategy.decoders={self.decoders}"
                    )
            except (ValueError, TypeError) as error:
                instead = f"use another compressor, or strategy.{named} with another codec or payload"
                for line in str(error).splitlines():
                    yield f"strategy=parameter_server strategy.{named}.{line}; {instead}"

    def bind(self, context: WorkerContext) -> None:
        self._context, self._step = context, -1
        self._server: Server | None = None
        self._client: Client | None = None
        self._losses: list[float] = []
        comm = context.comm
        comm.require_equal(parameters_crc32(context.model), "the checksum of the initial parameters")
        if comm.world_size == 1 or not comm.networked:
            return
        if not comm.address:
            raise RunError("rank 0 has no address at which clients could find the server")
        self._plans = {
            direction: asked_plan(direction, self._asked[direction], context.compressor) for direction in ("up", "down")
        }
        if not any(plan.bounded for plan in self._plans.values()):
            self.schedule = Fixed()  # nothing asks it, and it never interferes
        key = torch.tensor(list(os.urandom(KEY_BYTES)), dtype=torch.uint8)
        comm.broadcast(key).wait()
        schema = Schema.of(context.model)
        wire = Wire(
            schema,
            bytes(key.tolist()),
            self._plans["up"],
            self._plans["down"],
            clients=comm.world_size - 1,
            seed=context.spec.seed,
        )
        sends = "up" if comm.rank else "down"
        coders = {direction: self._coder(schema, plan, direction == sends) for direction, plan in self._plans.items()}
        if comm.rank:
            self._join(wire, coders)
        else:
            self._open(wire, coders)

    def step(self, batch: Batch, step: int) -> StepStats:
        self._step = step
        round_, place = divmod(step, self.local_steps)
        if place == 0:
            self._begin(round_)
        if self._server is not None:
            if place == self.local_steps - 1:
                self._server.collect(round_)
            return StepStats(None)
        loss = self._train(batch)
        self._losses.append(loss)
        if place == self.local_steps - 1:
            self._end(round_)
        return StepStats(loss)

    def finish(self) -> None:
        """The round that has begun is ended, and all take over what the last one has come to."""
        if self._server is None and self._client is None:
            return
        rounds, left = divmod(self._step + 1, self.local_steps)
        if left:
            if self._server is not None:
                self._server.collect(rounds)
            else:
                self._end(rounds)
            rounds += 1
        if self._server is not None:
            self._server.begin(rounds, is_last=True)
            self._server.take_over()
            self._server.close()
        elif self._client is not None:
            self._client.begin(rounds)
            self._client.close()

    def take_notes(self) -> list[dict[str, Any]]:
        role = self._server or self._client
        return [] if role is None else role.take_notes()

    def state_dict(self) -> dict[str, Any]:
        role = self._server or self._client
        return {"step": self._step, "losses": self._losses, "role": None if role is None else role.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._step, self._losses = state["step"], state["losses"]
        role = self._server or self._client
        if role is not None:
            role.load_state_dict(state["role"])

    def _coder(self, schema: Schema, plan: Plan, sends: bool) -> Coder:
        if self.gate is None or not sends or not can_gate(plan):
            return Coder(schema, plan)
        return GatedCoder(schema, plan, copy.deepcopy(self.gate), dilation=self._context.spec.dilation)

    def _open(self, wire: Wire, coders: Mapping[str, Coder]) -> None:
        """Be the server, and let all clients in."""
        context = self._context
        spec, comm, workload, model = context.spec, context.comm, context.workload, context.model
        seconds = spec.timeout_s * spec.dilation
        clients = comm.world_size - 1
        connections: dict[int, Connection] = {}
        with Listener(comm.address, charge=comm.charge, hello_s=seconds, most_newcomers=clients) as listener:
            comm.broadcast(torch.tensor([listener.port])).wait()
            for _ in listener.admit(connections, wire.expected(Kind.HELLO), deadline_s=time.monotonic() + seconds):
                if len(connections) == clients:
                    break
        if missing := set(range(clients)) - set(connections):
            for connection in connections.values():
                connection.close()
            ranks = ", ".join(str(client + 1) for client in sorted(missing))
            raise RunError(f"the server waited {seconds:g} s of wall time for rank {ranks}, which did not come")
        batch = workload.batch(0, rank=0, world_size=1, batch_size=self.probe_samples, seed=spec.seed + _PROBE_SEED)

        def probe() -> float:
            model.eval()
            with torch.no_grad():
                loss = float(workload.loss(model, batch))
            model.train()
            return loss

        down = coders["down"]
        self._server = Server(
            model,
            wire,
            coders["up"],
            down,
            schedule=self.schedule,
            probe=down.counted(probe) if isinstance(down, GatedCoder) else probe,
            decoders=self.decoders,
            connections=connections,
            pace=_NO_PACE,
            round_s=self.round_timeout_s * spec.dilation,
            clock=context.clock,
            stopwatch=comm.stopwatch,
        )

    def _join(self, wire: Wire, coders: Mapping[str, Coder]) -> None:
        """Be a client, and say hello."""
        context, comm = self._context, self._context.comm
        seconds = context.spec.timeout_s * context.spec.dilation
        port = torch.zeros(1, dtype=torch.int64)
        comm.broadcast(port).wait()
        number, deadline_s = comm.rank - 1, time.monotonic() + seconds
        connection = connect(comm.address, int(port), own=number, deadline_s=deadline_s, charge=comm.charge)
        expected = wire.expected(Kind.MODEL)
        send(connection, wire.hello(number), expected, deadline_s=deadline_s, pace=_NO_PACE)
        self._client = Client(
            number,
            context.model,
            wire,
            coders["up"],
            coders["down"],
            basis=self.schedule.basis,
            connection=connection,
            pace=_NO_PACE,
            round_s=self.round_timeout_s * context.spec.dilation,
            clock=context.clock,
            stopwatch=comm.stopwatch,
        )

    def _begin(self, round_: int) -> None:
        role = self._server or self._client
        if role is not None:
            role.begin(round_)

    def _end(self, round_: int) -> None:
        losses, self._losses = self._losses, []
        if self._client is not None:
            samples = len(losses) * self._context.spec.batch_size
            self._client.end(round_, samples=samples, train_loss=sum(losses) / len(losses))

    def _train(self, batch: Batch) -> float:
        context, clock = self._context, self._context.clock
        context.optimizer.zero_grad(set_to_none=True)
        with clock.phase("forward", clock.times.forward_s):
            loss = context.workload.loss(context.model, batch)
        with clock.phase("backward", clock.times.backward_s):
            loss.backward()
        with clock.phase("optimizer", clock.times.optimizer_s):
            context.optimizer.step()
        return float(loss.detach())
