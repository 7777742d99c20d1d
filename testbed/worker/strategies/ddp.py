from __future__ import annotations

from collections.abc import Iterator

from compressors.base.compressor import Context, Layout
from testbed.core.costs.fusion import BY_TIMES
from testbed.core.parameters import choice, flag
from testbed.worker.communication.collectives.algorithm_selection import COLLECTIVES, Collectives
from testbed.worker.device.accelerator import own_messages_fault
from testbed.worker.interfaces.strategy import WorkerContext
from testbed.worker.reduction.buckets import Bucket
from testbed.worker.reduction.data_parallel import BucketedStrategy
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
        bucket_size: text with a unit. Larger buckets pay the latency of a link less often, smaller ones overlap more.
        fusion: which gradients share a bucket, in the order of backward. size: as many as fit `bucket_size`.
            first_small: likewise, but the first is 25 times smaller. one: all. layers: those of one layer. mg_wfbp: by
            the times of layers and links (Shi et al., INFOCOM 2019). tuned: by size, which is searched during the run,
            in ten trials of six steps, and again when the network changes.
        collective: what carries the exchanges: gloo's own, or an algorithm of
        `testbed.worker.communication.collectives`, which sends
            bucket after bucket; `auto` takes the cheapest by the closed forms, for each exchange.
        accumulate: micro-batches of one step; the same gradient in less memory.
        clip_norm: the longest that the mean gradient may be (2-norm over all parameters); None leaves it as it is.
        overlap: False reduces only after backward, to show what overlap gains.
        compress: "all" that is sent, or, with a hierarchical collective, only what leaders send over the "wan".

    Raises:
        ValueError: a parameter is not one of these.
    """

    def __init__(
        self,
        *,
        bucket_size: str = "4 MiB",
        fusion: str = "size",
        collective: str = "gloo",
        compress: str = "all",
        accumulate: int = 1,
        clip_norm: float | None = None,
        overlap: bool = True,
    ) -> None:
        super().__init__(
            bucket_size=bucket_size,
            fusion=fusion,
            collective=collective,
            collectives=COLLECTIVES,
            accumulate=accumulate,
            clip_norm=clip_norm,
            faults=(
                flag("overlap", overlap),
                choice("compress", compress, ("all", "wan")),
                _BY_TIMES_FAULT if compress == "wan" and fusion == BY_TIMES else None,
                None
                if compress != "wan" or str(collective).startswith("hierarchical")
                else _WAN_FAULT.format(collective),
            ),
        )
        self.compress, self.overlap = compress, overlap
        self._waiting: list[Bucket] = []

    def validate_accelerator(self) -> Iterator[str]:
        yield from own_messages_fault(self.collective)

    def bind(self, context: WorkerContext) -> None:
        super().bind(context)
        spec = context.spec
        self._collectives = Collectives(context.comm, spec.topology, self.collective)
        parts = self.compressor, context.comm, context.clock, spec.topology, spec.seed
        self._reducer = (
            WanReducer(*parts, self.collective)
            if self.compress == "wan" and context.comm.networked
            else Reducer(*parts, self._collectives)
        )

    def _start(self, bucket: Bucket) -> None:
        if self.overlap:
            self._reducer.start(bucket.flat, bucket.layout, self._step)
        else:
            self._waiting.append(bucket)

    def _update(self) -> None:
        for bucket in self._waiting:
            self._reducer.start(bucket.flat, bucket.layout, self._step)
        self._waiting.clear()
        self._reducer.finish()
        self._take_step()

    def _reduction(self, layout: Layout) -> Context:
        return self._reducer.context(layout, step=0)
