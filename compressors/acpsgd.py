from __future__ import annotations

import torch
from torch import Tensor

from compressors.base.compressor import Context, Exchange, FeedbackMode, Layout, Rounds, Route, Traits
from compressors.parts.low_rank import LowRank, flat, orthonormalise, unflat
from testbed.core.parameters import Count


class ACPSGD(LowRank):
    """Send one of the two thin factors of each matrix, in turn.

    Zhang, Zhang, Shi, Chu, Li, "Evaluation and Optimization of Gradient Compression for Distributed Deep Learning",
    ICDCS 2023 (ACP-SGD, alternate compressed Power-SGD): power iteration as in PowerSGD, half of it a step. In even
    steps, with Q the orthonormalised factor of the step before, P = M Q is averaged and M is taken for P Q^T; in odd
    steps, with P orthonormalised, Q = M^T P is averaged and M is taken for P Q^T. Compared with the paper's public
    code, from the same first Q: results differ by 9.4e-7 at most.

    A tensor (a, b, c, ...) counts as a matrix (n, m) = (a, b*c*...). Vectors, and matrices for which two thin ones
    would not be smaller, go as they are.
    Biased; one exchange, summed in float32, so one wait where PowerSGD has two; not point to point. Use with error
    feedback. |x - C(x)| <= |x|, since C projects, and no less can be promised. NaN spreads over its matrix.
    Wire: in even steps P (r, n) of each matrix, in odd steps Q (r, m), and the rest as is, summed;
    4 * (r * n or r * m, summed over matrices, + rest) bytes. The last bits of factors may differ between kinds of
    device.
    Keeps the last factor of each matrix; the first Q is drawn from a seed all ranks share. Equal on all ranks; in other
    buckets it follows its parameter.

    Args:
        rank: Columns of P and Q (r).

    Raises:
        ValueError: rank is not a whole number from 1 up.
    """

    traits = Traits(own_rounds=True, max_rounds=1, point_to_point=False, feedback="required", contraction=0.0)

    def __init__(self, *, rank: Count = 4, feedback: FeedbackMode = "auto") -> None:
        super().__init__(rank=rank, feedback=feedback)

    def payload_bytes(self, layout: Layout, context: Context) -> int:
        p, q, rest = self.numels(layout)
        return 4 * ((q if context.step % 2 else p) + rest)

    def sent_bytes(self, layout: Layout, world_size: int, route: Route, *, step: int = 0) -> int:
        p, q, rest = self.numels(layout)
        return 2 * (world_size - 1) * 4 * ((q if step % 2 else p) + rest)

    def rounds(self, tensor: Tensor, context: Context, *, out: Tensor, error: Tensor | None = None) -> Rounds:
        layout, sends_q = context.layout, context.step % 2 == 1
        matrices, rest = self.views(tensor.contiguous(), layout)
        keys, next_keys = self.keys(context, "p" if sends_q else "q"), self.keys(context, "q" if sends_q else "p")
        bases = [
            orthonormalise(self.warm(key, matrix.shape[0 if sends_q else 1], index, context, tensor.device))
            for index, (key, matrix) in enumerate(zip(keys, matrices, strict=True))
        ]
        ours = [basis @ (matrix if sends_q else matrix.T) for basis, matrix in zip(bases, matrices, strict=True)]
        data = flat([*ours, *rest])
        if error is not None:
            self.leave_error(tensor, error, layout, *((bases, ours) if sends_q else (ours, bases)))
        (total,) = yield Exchange(kind="all_reduce", data=[data])
        found = list(unflat(total.mul_(1 / context.world_size), [t.shape for t in (*ours, *rest)]))
        means, rest_means = self.views(out, layout)
        for key, next_key, view, basis, factor in zip(keys, next_keys, means, bases, found, strict=False):
            torch.matmul(*((basis.T, factor) if sends_q else (factor.T, basis)), out=view)
            self.kept.pop(key, None)
            self.kept[next_key] = factor.clone()
        for view, mean in zip(rest_means, found[len(matrices) :], strict=True):
            view.copy_(mean)
