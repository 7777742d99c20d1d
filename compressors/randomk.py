from __future__ import annotations

import torch
from torch import Tensor

from compressors.base.chunks import chunks
from compressors.base.compressor import Context, FeedbackMode, Layout, Traits
from compressors.base.payload import from_bytes, require_size, to_bytes
from compressors.parts.sampling import sample
from compressors.parts.sparse import Sparsifier, kept_of, require_indices, scatter
from testbed.core.parameters import Flag, Share


class RandomK(Sparsifier):
    """Send k random entries, the same ones on every rank.

    Send k entries of each bucket drawn at random, the same ones on every rank, so that values alone are summed.

    Wangni, Wang, Liu, Zhang, "Gradient Sparsification for Communication-Efficient Distributed Optimization", NeurIPS
    2018, arXiv:1710.09854 (random dropping, scaled); Stich, Cordonnier, Jaggi, "Sparsified SGD with Memory", NeurIPS
    2018, arXiv:1809.07599 (rand-k, unscaled, with error feedback).
    Differs from the papers: every entry is as likely as any other, and all ranks draw alike; k is fixed. One entry is
    drawn from each of k equal ranges of the bucket, which begin at a drawn place, so neighbours rarely go together.

    Linear: payloads are summed in float32. Unscaled it is biased, |x - C(x)|^2 = (1 - k/n) |x|^2 in expectation: use
    with error feedback. Scaled by n/k it is unbiased, with (n/k - 1) |x|^2 of noise, and feedback is harmful. A bucket
    that holds NaN or infinity is sent as NaN.
    Wire: values (k,) float32; 4k bytes with k = ceil(density * n).
    Keeps no state.

    Args:
        density: Kept / all entries.
        scaled: Sent values are multiplied by n/k.

    Raises:
        ValueError: density is not in (0, 1], scaled is neither true nor false, or a bucket has more than 2**31 - 1
            entries.
    """

    def __init__(self, *, density: Share = 0.3, scaled: Flag = False, feedback: FeedbackMode = "auto") -> None:
        super().__init__(feedback=feedback)
        self.density, self.scaled = density, scaled
        if scaled:
            self.traits = Traits(sum_dtype=torch.float32, unbiased=True, feedback="harmful")
        else:
            self.traits = Traits(sum_dtype=torch.float32, contraction=density, feedback="recommended")

    def kept(self, numel: int, context: Context) -> int:
        return kept_of(self.density, numel)

    def payload_bytes(self, layout: Layout, context: Context) -> int:
        return 4 * self.kept(layout.numel, context)

    def select(self, tensor: Tensor, context: Context) -> tuple[Tensor, Tensor]:
        indices = self._drawn(tensor.numel(), context, tensor.device)
        values = tensor.index_select(0, indices).float()
        if not all_finite(tensor):
            values.fill_(torch.nan)
        elif self.scaled:
            values.mul_(tensor.numel() / max(len(values), 1))
        return indices, values

    def encode(self, tensor: Tensor, context: Context) -> Tensor:
        require_indices(tensor.numel(), type(self).__name__)
        return to_bytes(self.select(tensor, context)[1])

    def decode(self, payload: Tensor, out: Tensor, context: Context, *, add: bool = False, scale: float = 1.0) -> None:
        numel = out.numel()
        require_size(payload, 4 * self.kept(numel, context), type(self).__name__, numel)
        indices = self._drawn(numel, context, out.device)
        scatter(out, indices, from_bytes(payload, torch.float32), add, scale)

    def _drawn(self, numel: int, context: Context, device: torch.device) -> Tensor:
        """Return (k,) int64, ascending; each entry is among them with probability k / n."""
        k = self.kept(numel, context)
        if not k:
            return torch.empty(0, dtype=torch.int64, device=device)
        # Stretches differ in length by one; where the first begins is drawn, which makes entries equally likely.
        turn = context.random("turn", shared=True).integer(numel)
        places = sample(context.random("place", shared=True), numel, k, device).add_(turn)
        beyond = places >= numel
        places[beyond] -= numel
        return places.roll(int(beyond.sum()))


def all_finite(tensor: Tensor) -> bool:
    """Return True if no entry is NaN or infinite, by sums first, since those are cheap."""
    for part in chunks(tensor):
        piece = tensor[part]
        if not bool(piece.sum().isfinite()) and not bool(piece.isfinite().all()):
            return False
    return True
