from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from compressors.base import Compressor
from compressors.feedback import with_feedback
from testbed.core.units import parse_size_bytes
from testbed.worker.buckets import Bucket, Buckets
from testbed.worker.reducer import Reducer
from testbed.worker.strategy import StepStats, Strategy, WorkerContext
from testbed.worker.workload import Batch, Workload, parameters_crc32


class DDP(Strategy):
    """Synchronous data parallelism: average gradients bucket by bucket while backward goes on.

    Li et al., "PyTorch Distributed: Experiences on Accelerating Data Parallel Training", VLDB 2020, arXiv:2006.15704.
    Differs from the paper: buckets are filled in the reverse order of the model's parameters and never rebuilt; every
    bucket passes through the compressor, vectors and small tensors with it.

    A bucket is compressed when its last gradient arrives, and its first exchange overlaps the rest of backward; further
    exchanges, if its compressor has any, and decompression follow after backward.
    Synchronous; with no compressor, n ranks equal one rank with n times the batch.
    In a partition it waits: a short one costs its length and what TCP takes to try again; one longer than `timeout_s`
    fails the run, which names the rank and the link that is down.
    Cost: one reduction per bucket and step, 4 bytes a parameter for the buckets.

    Args:
        bucket_size: text with a unit. Larger buckets pay the latency of a link less often, smaller ones overlap more.

    Raises:
        ValueError: bucket_size is not a size above 0.
    """

    def __init__(self, *, bucket_size: str = "4 MiB") -> None:
        try:
            self.bucket_size_bytes = parse_size_bytes(bucket_size)
        except ValueError as error:
            raise ValueError(f"bucket_size={bucket_size}: {error}") from error
        if self.bucket_size_bytes < 1:
            raise ValueError(f"bucket_size={bucket_size}: must be above 0")

    def faults(self, compressor: Compressor, workload: Workload, world_size: int) -> Iterator[str]:
        if compressor.traits.owns_momentum and _has_momentum(workload):
            names = type(compressor).__name__, type(workload).__name__
            yield "compressor: {} applies momentum itself; the optimizer of {} must have none".format(*names)

    def bind(self, context: WorkerContext) -> None:
        self._context = context
        self._step = 0
        self.compressor: Compressor = with_feedback(context.compressor)
        self._reducer = Reducer(self.compressor, context.comm, context.clock, context.spec.topology, context.spec.seed)
        self.buckets = Buckets(context.model.parameters(), self.bucket_size_bytes, self._send)
        context.comm.require_equal(parameters_crc32(context.model), "the checksum of the initial parameters")

    def step(self, batch: Batch, step: int) -> StepStats:
        context, clock = self._context, self._context.clock
        self._step = step
        self.buckets.reset()
        with clock.phase("forward"):
            loss = context.workload.loss(context.model, batch)
        with clock.phase("backward"):
            loss.backward()
        self.buckets.flush()
        self._reducer.finish()
        with clock.phase("optimizer"):
            context.optimizer.step()
        return StepStats(float(loss.detach()))

    def routes(self) -> list[str]:
        contexts = [self._reducer.context(bucket.layout, step=0) for bucket in self.buckets.buckets]
        return [context.route.value for context in contexts if context.route is not None]

    def state_dict(self) -> dict[str, Any]:
        return {"compressor": self.compressor.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.compressor.load_state_dict(state["compressor"])

    def _send(self, bucket: Bucket) -> None:
        self._reducer.start(bucket.flat, bucket.layout, self._step)


def _has_momentum(workload: Workload) -> bool:
    optimizer = workload.optimizer([torch.nn.Parameter(torch.zeros(1))])
    return any(group.get("momentum") or group.get("betas", (0,))[0] for group in optimizer.param_groups)
