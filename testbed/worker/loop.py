"""The one training loop: order of data, timing, records, stopping."""

from __future__ import annotations

import copy
import math
import threading
import time
from collections.abc import Callable
from typing import Any

from compressors.base import Compressor
from testbed.core.errors import RunError
from testbed.core.spec import RunSpec
from testbed.core.telemetry import PHASES
from testbed.worker.clock import PhaseClock
from testbed.worker.comm import Communicator
from testbed.worker.evaluation import Evaluations
from testbed.worker.parts import Parts
from testbed.worker.rehearsal import rehearse
from testbed.worker.strategy import WorkerContext
from testbed.worker.workload import parameters_crc32

Emit = Callable[[dict[str, Any]], None]
WARM_UP_STEPS = 2


class Training:
    """One rank's part of a run."""

    def __init__(self, spec: RunSpec, parts: Parts, comm: Communicator, emit: Emit) -> None:
        """
        Args:
            emit: is called from two threads.
        """
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
        self._evaluations = Evaluations(parts.workload, self.model, emit) if comm.rank == 0 else None

    @property
    def parameters(self) -> int:
        return sum(p.numel() for p in self.model.parameters() if p.requires_grad)

    def describe(self) -> dict[str, Any]:
        """The "model" event; the strategy is bound by then."""
        metric = self.parts.workload.metric
        return {
            "event": "model",
            "rank": self.comm.rank,
            "parameters": self.parameters,
            "dense_bytes_step": 2 * (self.comm.world_size - 1) * 4 * self.parameters,
            "metric_name": metric.name,
            "metric_target": metric.target,
            "higher_is_better": metric.higher_is_better,
            "routes": self.parts.strategy.routes(),
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
        if self._evaluations is not None:
            self._evaluations.rehearse()
        taken = 0
        while taken < WARM_UP_STEPS or not stop.is_set():
            loss = workload.loss(model, batch)
            if taken >= WARM_UP_STEPS and stop.is_set():
                return
            loss.backward()
            if taken == 0:
                rehearse(scratch, model, self.spec, self.comm.rank)
            optimizer.step()
            optimizer.zero_grad()
            taken += 1
            if taken == WARM_UP_STEPS:
                self.emit({"event": "warm", "rank": self.comm.rank})

    def run(self, t0_s: float) -> dict[str, Any]:
        """Train from `t0_s` (CLOCK_MONOTONIC) to the end; return the "done" event, once all else has been told."""
        time.sleep(max(0.0, t0_s - time.monotonic()))
        self.clock.take()
        self.comm.stopwatch.take_s()
        self.comm.payload_bytes = 0
        late_s = self._since_s(t0_s)
        self.emit({"event": "start", "t_s": late_s, "rank": self.comm.rank, "late_s": late_s})
        for step in range(self.steps):
            self._step(step, t0_s)
        finishing_s, sent_before = time.monotonic(), self.comm.payload_bytes
        self.parts.strategy.finish()
        done = {
            "event": "done",
            "t_s": self._since_s(t0_s),
            "rank": self.comm.rank,
            "steps": self.steps,
            "finish_s": self._since_s(finishing_s),
            "finish_payload_bytes": self.comm.payload_bytes - sent_before,
            "parameters_crc32": parameters_crc32(self.model),
        }
        if self._evaluations is not None:
            self._evaluations.finish(self.comm.timeout_s)
        return done

    def _since_s(self, then_s: float) -> float:
        """Emulated seconds since `then_s`."""
        return (time.monotonic() - then_s) / self.spec.dilation

    def _step(self, step: int, t0_s: float) -> None:
        spec, rank = self.spec, self.comm.rank
        self.comm.step = step + 1
        started_s, sent_before = time.monotonic(), self.comm.payload_bytes
        with self.clock.phase("forward"):
            batch = self.parts.workload.batch(
                step, rank=rank, world_size=self.comm.world_size, batch_size=spec.batch_size, seed=spec.seed
            )
        # What the strategy does outside the phases it names falls to this one, so that phases add up to the step.
        with self.clock.phase("optimizer"):
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
        due = (step + 1) % spec.evaluate_every == 0 or step + 1 == self.steps
        if self._evaluations is not None and due:
            self._evaluations.start(step + 1, t_s)
