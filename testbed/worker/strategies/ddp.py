from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

import torch
from torch import Tensor

from testbed.core.costs.fusion import BY_TIMES
from testbed.core.costs.sockets import libraries
from testbed.core.kinds import Choice
from testbed.core.parameters import Count, Flag, Positive, Size, raise_all
from testbed.worker.communication.collectives.algorithm_selection import Collectives, SumsName
from testbed.worker.interfaces.strategy import WorkerContext
from testbed.worker.interfaces.workload import Batch
from testbed.worker.reduction.buckets import Bucket
from testbed.worker.reduction.data_parallel import BucketedStrategy, Fusion
from testbed.worker.reduction.reducer import Reducer
from testbed.worker.reduction.wan_reducer import WanReducer

_BY_TIMES_FAULT = f"fusion={BY_TIMES}: does not know what compress=wan costs; use fusion=size"
_WAN_FAULT = "compress=wan: needs collective=hierarchical or hierarchical_two_shot, found {}"


class DDP(BucketedStrategy):
    """Synchronous data parallelism: average gradients bucket by bucket while backward goes on.

    Li et al., "PyTorch Distributed: Experiences on Accelerating Data Parallel Training", VLDB 2020, arXiv:2006.15704.
    Differs from the paper: buckets are filled in the reverse order of the model's parameters, whatever order the first
    backward takes; every bucket passes through the compressor, vectors and small tensors with it.

    A bucket is compressed when its last gradient arrives, and its first exchange overlaps the rest of backward; further
    exchanges, if its compressor has any, and decompression follow after backward.
    Synchronous; with no compressor, n ranks equal one rank with n times the batch.
    In a partition it waits: a short one costs its length and what TCP takes to try again; one longer than `timeout_s`
    fails the run, which names the rank and the link that is down.
    Cost: one reduction per bucket and step, 4 bytes a parameter for the buckets.

    Args:
        compress: Compressed traffic; wan: only leaders' WAN traffic. wan needs a hierarchical collective.
        overlap: Reduce during backward; false: after it.
        broadcast_buffers: Send rank 0's buffers before each forward. torch's DistributedDataParallel does so unless
            told otherwise.

    Raises:
        ValueError: a parameter is not one of these.
    """

    _reducer: Reducer | WanReducer

    def __init__(
        self,
        *,
        bucket_size: Size = "4 MiB",
        fusion: Fusion = "size",
        collective: SumsName = "gloo",
        compress: Annotated[str, Choice(("all", "wan"))] = "all",
        accumulate: Count = 1,
        clip_norm: Positive | None = None,
        overlap: Flag = True,
        broadcast_buffers: Flag = False,
    ) -> None:
        if compress == "wan":
            raise_all(
                _BY_TIMES_FAULT if fusion == BY_TIMES else None,
                None if collective.startswith("hierarchical") else _WAN_FAULT.format(collective),
            )
        super().__init__(
            bucket_size=bucket_size,
            fusion=fusion,
            collective=collective,
            accumulate=accumulate,
            clip_norm=clip_norm,
        )
        self.compress, self.overlap, self.broadcast_buffers = compress, overlap, broadcast_buffers
        self._waiting: list[Bucket] = []

    def validate_accelerator(self) -> Iterator[str]:
        if self.compress == "wan":
            yield "strategy.compress=wan: leaders reduce in the host's memory; use compress=all"

    def bind(self, context: WorkerContext) -> None:
        super().bind(context)
        spec = context.spec
        self._collectives = Collectives(context.comm, spec.topology, self.collective, libraries(spec))
        parts = self.compressor, context.comm, context.clock, spec.topology, spec.seed
        self._reducer = (
            WanReducer(*parts, self.collective)
            if self.compress == "wan" and context.comm.networked
            else Reducer(*parts, self._collectives)
        )

    def _forward(self, part: Batch, number: int) -> Tensor:
        if self.broadcast_buffers and number == 0 and self._context.comm.networked:
            self._share_buffers(list(self._context.model.buffers()))
        return super()._forward(part, number)

    def _share_buffers(self, buffers: list[Tensor]) -> None:
        """Overwrite buffers with rank 0's, all in one broadcast, which is waited for."""
        if not buffers:
            return
        flat = torch.cat([buffer.reshape(-1).view(torch.uint8) for buffer in buffers])
        self._collectives.broadcast(flat).wait()
        if self._context.rank != 0:
            for buffer, piece in zip(buffers, flat.split([buffer.nbytes for buffer in buffers]), strict=True):
                buffer.copy_(piece.clone().view(buffer.dtype).view_as(buffer))  # cloned: a view has to be aligned

    def _start(self, bucket: Bucket) -> None:
        if self.overlap:
            super()._start(bucket)
        else:
            self._waiting.append(bucket)

    def _update(self) -> None:
        for bucket in self._waiting:
            super()._start(bucket)
        self._waiting.clear()
        self._reducer.finish()
        self._take_step()
