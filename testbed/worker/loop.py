"""The one training loop: order of data, timing, records, stopping."""

from __future__ import annotations

import copy
import math
import threading
import time
from collections.abc import Callable
from typing import Any

import torch

from compressors.base import Compressor, Context, Layout, choose_route
from testbed.core.errors import RunError
from testbed.core.spec import RunSpec
from testbed.core.telemetry import PHASES
from testbed.worker.clock import PhaseClock
from testbed.worker.comm import Communicator
from testbed.worker.parts import Parts
from testbed.worker.strategy import WorkerContext

Emit = Callable[[dict[str, Any]], None]
WARM_UP_STEPS = 2


class Training:
    """One rank's part of a run."""

    def __init__(self, spec: RunSpec, parts: Parts, comm: Communicator, emit: Emit) -> None:
        self.spec, self.parts, self.comm, self.emit = spec, parts, comm, emit
        self.clock = PhaseClock(spec.dilation)
        self.model = parts.workload.model(spec.seed)
        self.steps = spec.steps or math.ceil(
            (spec.epochs or 0) * parts.workload.samples() / (spec.batch_size * spec.workers)
        )
        self.context = WorkerContext(
            spec=spec,
            workload=parts.workload,
            model=self.model,
            optimizer=parts.workload.optimizer(self.model.parameters()),
            compressor=parts.compressor,
            comm=comm,
            clock=self.clock,
        )

    @property
    def parameters(self) -> int:
        return sum(p.numel() for p in self.model.parameters() if p.requires_grad)

    def describe(self) -> dict[str, Any]:
        """The "model" event."""
        metric = self.parts.workload.metric
        return {
            "event": "model",
            "parameters": self.parameters,
            "dense_bytes_step": 2 * (self.comm.world_size - 1) * 4 * self.parameters,
            "metric_name": metric.name,
            "metric_target": metric.target,
            "higher_is_better": metric.higher_is_better,
        }

    def warm_up(self, stop: threading.Event, scratch: Compressor) -> None:
        """Take steps on a copy of everything until `stop`, two at least. Sends nothing, and leaves no trace in the run.

        Args:
            scratch: a compressor of the run's kind, not the run's own.
        """
        model = copy.deepcopy(self.model)
        optimizer = self.parts.workload.optimizer(model.parameters())
        workload = self.parts.workload
        batch = workload.batch(0, rank=0, world_size=1, batch_size=self.spec.batch_size, seed=self.spec.seed)
        if self.comm.rank == 0:
            workload.evaluate(model)
        taken = 0
        while taken < WARM_UP_STEPS or not stop.is_set():
            workload.loss(model, batch).backward()
            if taken == 0:
                _rehearse(scratch, model)
            optimizer.step()
            optimizer.zero_grad()
            taken += 1
            if taken == WARM_UP_STEPS:
                self.emit({"event": "warm", "rank": self.comm.rank})

    def run(self, t0_s: float) -> None:
        """Train from `t0_s` (CLOCK_MONOTONIC) to the end."""
        time.sleep(max(0.0, t0_s - time.monotonic()))
        self.clock.take()
        self.comm.stopwatch.take_s()
        self.comm.payload_bytes = 0
        for step in range(self.steps):
            self._step(step, t0_s)
        self.parts.strategy.finish()

    def _step(self, step: int, t0_s: float) -> None:
        spec, rank = self.spec, self.comm.rank
        self.comm.step = step + 1
        started_s, sent_before = time.monotonic(), self.comm.payload_bytes
        batch = self.parts.workload.batch(
            step, rank=rank, world_size=self.comm.world_size, batch_size=spec.batch_size, seed=spec.seed
        )
        stats = self.parts.strategy.step(batch, step)
        ended_s = time.monotonic()
        if not math.isfinite(stats.loss):
            raise RunError(f"rank {rank}: the loss of step {step + 1} is {stats.loss}; the training has diverged")
        phase_s = dict.fromkeys(PHASES, 0.0) | self.clock.take()
        phase_s["communicate"] = self.comm.stopwatch.take_s() / spec.dilation
        t_s = (ended_s - t0_s) / spec.dilation
        self.emit(
            {
                "event": "step",
                "t_s": t_s,
                "rank": rank,
                "step": step + 1,
                "loss": stats.loss,
                "step_s": (ended_s - started_s) / spec.dilation,
                "phase_s": phase_s,
                "payload_bytes": self.comm.payload_bytes - sent_before,
                "samples": spec.batch_size,
            }
        )
        if rank == 0 and ((step + 1) % spec.evaluate_every == 0 or step + 1 == self.steps):
            value = self.parts.workload.evaluate(self.model)
            name = self.parts.workload.metric.name
            self.emit({"event": "evaluation", "t_s": t_s, "rank": 0, "step": step + 1, "name": name, "value": value})


def _rehearse(scratch: Compressor, model: torch.nn.Module) -> None:
    """Load what the compressor loads on first use, and touch its code once, with no other rank."""
    gradients = [p.grad for p in model.parameters() if p.grad is not None]
    layout = Layout(tuple(tuple(g.shape) for g in gradients))
    flat = torch.cat([g.reshape(-1) for g in gradients])
    route = choose_route(scratch, layout, 1, alpha_s=0.0, beta_s_byte=0.0)
    context = Context(layout=layout, route=route, seed=0, step=0, rank=0, world_size=1)
    rounds = scratch.rounds(flat, context, out=flat)
    try:
        exchange = next(rounds)
        while True:
            exchange = rounds.send(list(exchange.data))
    except StopIteration:
        return
