from __future__ import annotations

import torch
from torch import Tensor

from compressors.base.compressor import Context, Exchange, FeedbackMode, Layout, Rounds, Route, Traits
from compressors.parts.dense import dense_copy, dense_sent_bytes
from compressors.parts.low_rank import LowRank, flat, orthonormalise, unflat
from testbed.core.parameters import Count, CountOrZero


class PowerSGD(LowRank):
    """Send each matrix as a product of two thin ones.

    Vogels, Karimireddy, Jaggi, "PowerSGD: Practical Low-Rank Gradient Compression for Distributed Optimization",
    NeurIPS 2019, arXiv:1905.13727, Algorithms 1 and 2.
    Differs from the paper: P is made orthonormal by reflections; a column of Q that has become zero is drawn again.

    A tensor (a, b, c, ...) counts as a matrix (n, m) = (a, b*c*...). Vectors, and matrices for which two thin ones
    would not be smaller, go as they are with the first exchange.
    Biased; two exchanges, each summed in float32; not point to point. Use with error feedback. |x - C(x)| <= |x|, and
    no less can be promised: a matrix may lie across all that Q spans. NaN spreads over its matrix.
    Wire: P (r, n) of each matrix and the rest as is, summed; then Q (r, m) of each, summed;
    4 * (r * (n + m) summed over matrices + rest) bytes. Before `start_step` the bucket, summed; 4 bytes an element. The
    last bits of factors may differ between kinds of device.
    Keeps Q of each matrix from step to step; the first is drawn from a seed all ranks share. Equal on all ranks; in
    other buckets it follows its parameter.

    Args:
        rank: Columns of P and Q (r).
        start_step: First compressed step, from 0. Earlier buckets are summed in float32, without residual. torch's
            powersgd_hook calls 2 start_powerSGD_iter=2.

    Raises:
        ValueError: rank is not a whole number from 1 up, or start_step is not one from 0 up.
    """

    traits = Traits(own_rounds=True, max_rounds=2, point_to_point=False, feedback="required", contraction=0.0)

    def __init__(self, *, rank: Count = 4, start_step: CountOrZero = 0, feedback: FeedbackMode = "auto") -> None:
        super().__init__(rank=rank, feedback=feedback)
        self.start_step = start_step

    def payload_bytes(self, layout: Layout, context: Context) -> int:
        """Return the bytes of both exchanges together, or of the whole bucket before `start_step`."""
        return 4 * layout.numel if context.step < self.start_step else 4 * sum(self.numels(layout))

    def sent_bytes(self, layout: Layout, world_size: int, route: Route, *, step: int = 0) -> int:
        if step < self.start_step:
            return dense_sent_bytes(layout, world_size)
        return 2 * (world_size - 1) * 4 * sum(self.numels(layout))

    def rounds(self, tensor: Tensor, context: Context, *, out: Tensor, error: Tensor | None = None) -> Rounds:
        if context.step >= self.start_step:
            yield from self._compressed(tensor, context, out, error)
            return
        (total,) = yield Exchange(kind="all_reduce", data=[dense_copy(tensor)])
        torch.mul(total, 1 / context.world_size, out=out)
        if error is not None:
            error.zero_()

    def _compressed(self, tensor: Tensor, context: Context, out: Tensor, error: Tensor | None) -> Rounds:
        layout, world_size = context.layout, context.world_size
        matrices, rest = self.views(tensor.contiguous(), layout)
        keys = self.keys(context, "q")
        warm = [
            self.warm(key, matrix.shape[1], index, context, tensor.device)
            for index, (key, matrix) in enumerate(zip(keys, matrices, strict=True))
        ]
        ours = [q @ matrix.T for matrix, q in zip(matrices, warm, strict=True)]
        (first,) = yield Exchange(kind="all_reduce", data=[flat([*ours, *rest])], then="compress")
        found = list(unflat(first.mul_(1 / world_size), [t.shape for t in (*ours, *rest)]))
        bases = [orthonormalise(p) for p in found[: len(matrices)]]
        ours = [basis @ matrix for matrix, basis in zip(matrices, bases, strict=True)]
        means, rest_means = self.views(out, layout)
        for view, mean in zip(rest_means, found[len(matrices) :], strict=True):
            view.copy_(mean)
        if ours:
            (second,) = yield Exchange(kind="all_reduce", data=[flat(ours)])
            factors = unflat(second.mul_(1 / world_size), [q.shape for q in ours])
            if error is not None:
                self.leave_error(tensor, error, layout, bases, ours)
            for key, view, basis, q in zip(keys, means, bases, factors, strict=True):
                torch.matmul(basis.T, q, out=view)
                self.kept[key] = q.clone()
        elif error is not None:
            self.leave_error(tensor, error, layout, bases, ours)
