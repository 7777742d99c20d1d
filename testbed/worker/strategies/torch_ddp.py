from collections.abc import Iterator
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook
from torch.nn.parallel import DistributedDataParallel

from testbed.core.parameters import Size
from testbed.core.units import parse_size_bytes
from testbed.worker.device.clock import WAITING
from testbed.worker.interfaces.strategy import StepStats, Strategy, WorkerContext
from testbed.worker.interfaces.workload import Batch


class TorchDDP(Strategy):
    """PyTorch's own DistributedDataParallel, as the reference for `ddp`.

    Li et al., "PyTorch Distributed: Experiences on Accelerating Data Parallel Training", VLDB 2020, arXiv:2006.15704.
    Its reductions are torch's `allreduce_hook`, which gives what torch does without a hook; ours around it counts bytes
    and time. Communication is waited for inside backward: the wait from the last gradient on is taken for exposed.

    Synchronous. Carries no compressor.
    In a partition it waits: a short one costs its length and what TCP takes to try again; one longer than `timeout_s`
    fails the run, which names the rank and the link that is down.

    Args:
        bucket_size: Size of a gradient bucket. It is given to torch in MiB.

    Raises:
        ValueError: bucket_size is not a size above 0.
    """

    def __init__(self, *, bucket_size: Size = "4 MiB") -> None:
        self.bucket_size_bytes = parse_size_bytes(bucket_size)

    def validate_accelerator(self) -> Iterator[str]:
        yield from ()

    def bind(self, context: WorkerContext) -> None:
        self._context = context
        self._ddp = DistributedDataParallel(
            context.model,
            bucket_cap_mb=self.bucket_size_bytes / 2**20,
            forward_sync_buffers=False,
            gradient_as_bucket_view=True,
        )
        self._ddp.register_comm_hook(None, self._reduce)
        self._missing = 0
        self._wait: Any = None
        for parameter in context.model.parameters():
            if parameter.requires_grad:
                parameter.register_post_accumulate_grad_hook(self._arrived)

    def step(self, batch: Batch, step: int) -> StepStats:
        context, clock = self._context, self._context.clock
        context.optimizer.zero_grad()
        self._missing = sum(p.requires_grad for p in context.model.parameters())
        try:
            with clock.phase(WAITING):
                # Torch groups gradients anew once, by the order in which the first backward gave them, and rank 0 tells
                # the others how. It would do so at the beginning of forward, which would be late by the round trips.
                self._ddp.reducer._rebuild_buckets()
            with clock.phase("forward", clock.times.forward_s):
                loss = context.workload.loss(self._ddp, batch)
            with clock.phase("backward", clock.times.backward_s):
                loss.backward()
                if self._wait is not None:
                    self._wait.__exit__(None, None, None)
                    self._wait = None
        except RuntimeError as error:
            raise context.comm.error("torch's DistributedDataParallel", error) from error
        with clock.phase("optimizer", clock.times.optimizer_s):
            context.optimizer.step()
        return StepStats(float(loss.detach()))

    def _arrived(self, parameter: torch.Tensor) -> None:
        self._missing -= 1
        if self._missing == 0:
            self._context.clock.spend(self._context.clock.times.backward_s or 0.0)
            self._wait = self._context.clock.phase(WAITING)
            self._wait.__enter__()

    def _reduce(self, state: None, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:  # type: ignore[name-defined]
        comm, clock = self._context.comm, self._context.clock
        # a bucket's parameters are those of its gradients; called by backward, in the main thread
        clock.spend(clock.times.backward_of(bucket.parameters()))
        clock.mark()
        comm.count(2 * (comm.world_size - 1) * bucket.buffer().nbytes)
        # The process group is torch's default one, to which None refers.
        future = allreduce_hook(None, bucket)  # type: ignore[arg-type]
        comm.stopwatch.follow(comm.accelerator.until_through(future.wait))
        return future
