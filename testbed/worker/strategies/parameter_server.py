from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch

from compressors.base import Compressor
from testbed.core import parameter_faults
from testbed.core.bound_baselines import Fixed
from testbed.core.bound_rounds import BoundSchedule
from testbed.core.bound_schedules import AdaptiveBound
from testbed.core.errors import Left, RunError
from testbed.core.frame_refusals import Refused
from testbed.worker.server.asked import asked_plan
from testbed.worker.server.client import Client
from testbed.worker.server.connection import Gone
from testbed.worker.server.door import Door, knock, look_up
from testbed.worker.server.schema import Schema
from testbed.worker.server.server import Server
from testbed.worker.server.streams import Pace
from testbed.worker.server.tensors import Coder
from testbed.worker.server.wire import Wire
from testbed.worker.strategy import StepStats, Strategy, WorkerContext
from testbed.worker.workload import Batch, Workload, parameters_crc32

KEY_BYTES = 32
_NO_PACE = Pace(least_bytes_s=0.0, window_s=60.0)
"""Links are as slow as a run asks for; who is late is told by the deadline."""
_PROBE_SEED = 1


@contextmanager
def _left_once_out() -> Iterator[None]:
    """A client that the server has put out, or that has lost it, ends alone; servers raise none of these."""
    try:
        yield
    except (Gone, Refused) as error:
        raise Left(f"this client is out: {error}") from error


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
    over each. Who sends what cannot be used, or nothing in time, is out and ends alone, and the round goes on with the
    rest, as it does when a client dies; without any client the run fails, and says why of each. One that is started
    again comes in before the next round, gets the whole model, and goes on from there with new momenta.

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
    ) -> None:
        self.schedule: BoundSchedule = AdaptiveBound() if bound is None else bound
        self._asked = {"up": dict(uplink or {}), "down": dict(downlink or {})}
        parameter_faults.raise_all(
            parameter_faults.whole("local_steps", local_steps, 1),
            parameter_faults.whole("probe_samples", probe_samples, 1),
            parameter_faults.number("round_timeout_s", round_timeout_s, above=0, below=float("inf")),
            None if hasattr(self.schedule, "client_alphas") else f"bound={bound!r}: must be a schedule of bounds",
        )
        self.local_steps, self.probe_samples, self.round_timeout_s = local_steps, probe_samples, round_timeout_s

    def part(self, rank: int, world_size: int) -> tuple[int, int] | None:
        if world_size == 1:
            return 0, 1
        return (rank - 1, world_size - 1) if rank else None

    def outlives(self, rank: int) -> bool:
        return rank > 0

    def faults(self, compressor: Compressor, workload: Workload, world_size: int) -> Iterator[str]:
        if not workload.computes:
            yield f"strategy=parameter_server: {type(workload).__name__} has no parameters of its own to send"
        for direction, named in (("up", "uplink"), ("down", "downlink")):
            try:
                asked_plan(direction, self._asked[direction], compressor)
            except (ValueError, TypeError) as error:
                instead = f"use another compressor, or strategy.{named} with another codec or payload"
                for line in str(error).splitlines():
                    yield f"strategy=parameter_server strategy.{named}.{line}; {instead}"

    def bind(self, context: WorkerContext) -> None:
        self._context, self._step = context, -1
        self._server: Server | None = None
        self._client: Client | None = None
        self._losses: list[float] = []
        self._come_back: Callable[[], int] | None = None
        comm = context.comm
        if not comm.is_back:
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
        port, key = look_up(comm) if comm.is_back else (0, self._agreed_key())
        schema = Schema.of(context.model)
        wire = Wire(
            schema,
            key,
            self._plans["up"],
            self._plans["down"],
            clients=comm.world_size - 1,
            seed=context.spec.seed,
        )
        coders = {direction: Coder(schema, plan) for direction, plan in self._plans.items()}
        if not comm.rank:
            self._open(wire, coders)
        elif comm.is_back:
            self._come_back = lambda: self._join(wire, coders, port).come_back()
        else:
            there = torch.zeros(1, dtype=torch.int64)
            comm.broadcast(there).wait()
            self._join(wire, coders, int(there))

    @_left_once_out()
    def first_step(self) -> int:
        if self._come_back is None:
            return 0
        first = self._come_back() * self.local_steps
        self._step = first - 1
        return first

    @_left_once_out()
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

    @_left_once_out()
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
        return [] if self._server is None else self._server.take_notes()

    def state_dict(self) -> dict[str, Any]:
        role = self._server or self._client
        return {"step": self._step, "losses": self._losses, "role": None if role is None else role.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._step, self._losses = state["step"], state["losses"]
        role = self._server or self._client
        if role is not None:
            role.load_state_dict(state["role"])

    def _open(self, wire: Wire, coders: Mapping[str, Coder]) -> None:
        """Be the server, and let all clients in."""
        context = self._context
        spec, comm, workload, model = context.spec, context.comm, context.workload, context.model
        seconds = spec.timeout_s * spec.dilation
        door = Door(comm, wire, hello_s=seconds)
        comm.broadcast(torch.tensor([door.port])).wait()
        batch = workload.batch(0, rank=0, world_size=1, batch_size=self.probe_samples, seed=spec.seed + _PROBE_SEED)

        def probe() -> float:
            model.eval()
            with torch.no_grad():
                loss = float(workload.loss(model, batch))
            model.train()
            return loss

        self._server = Server(
            model,
            wire,
            coders["up"],
            coders["down"],
            schedule=self.schedule,
            probe=probe,
            connections=door.let_all_in(seconds),
            pace=_NO_PACE,
            round_s=self.round_timeout_s * spec.dilation,
            clock=context.clock,
            stopwatch=comm.stopwatch,
            door=door,
        )

    def _join(self, wire: Wire, coders: Mapping[str, Coder], port: int) -> Client:
        """Be a client, and say hello."""
        context, comm = self._context, self._context.comm
        deadline_s = time.monotonic() + context.spec.timeout_s * context.spec.dilation
        connection = knock(comm, port, wire, pace=_NO_PACE, deadline_s=deadline_s)
        self._client = Client(
            comm.rank - 1,
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
        return self._client

    def _agreed_key(self) -> bytes:
        key = torch.tensor(list(os.urandom(KEY_BYTES)), dtype=torch.uint8)
        self._context.comm.broadcast(key).wait()
        return bytes(key.tolist())

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
