from __future__ import annotations

import torch
from torch import Tensor

from compressors.base import Compressor, Context, Layout, Traits
from compressors.payload import PayloadError, from_bytes, require_size, to_bytes

_MAX_NUMEL = 2**31 - 1


class TopK(Compressor):
    """Send the k entries of largest magnitude of each bucket.

    Aji and Heafield, "Sparse Communication for Distributed Gradient Descent", EMNLP 2017, arXiv:1704.05021.
    Differs from the paper: k is exact in every bucket, not found from a sampled threshold; residuals are kept by
    `ErrorFeedback`.

    Biased; not linear, so payloads are gathered. |x - C(x)|^2 <= (1 - k/n) |x|^2. Use with error feedback.
    NaN counts as large.
    Wire: values (k,) float32, then indices (k,) int32, ascending; 8k bytes with k = max(1, round(density * n)).
    Keeps no state.

    Args:
        density: kept / all entries, above 0 up to 1.

    Raises:
        ValueError: density is not in (0, 1], or a bucket has more than 2**31 - 1 entries.
    """

    traits = Traits(needs_feedback=True)

    def __init__(self, *, density: float = 0.01, feedback: str | bool = "auto") -> None:
        super().__init__(feedback=feedback)
        if isinstance(density, bool) or not isinstance(density, int | float) or not 0 < density <= 1:
            raise ValueError(f"density={density}: must be in (0, 1]")
        self.density = density

    def payload_bytes(self, layout: Layout, context: Context) -> int:
        return 8 * self._kept(layout.numel)

    def encode(self, tensor: Tensor, context: Context) -> Tensor:
        if tensor.numel() > _MAX_NUMEL:
            raise ValueError(f"a bucket of {tensor.numel()} entries: TopK's indices reach {_MAX_NUMEL}")
        kept = torch.topk(tensor.abs(), self._kept(tensor.numel()), sorted=False).indices.sort().values
        return torch.cat([to_bytes(tensor[kept].float()), to_bytes(kept.to(torch.int32))])

    def decode(self, payload: Tensor, out: Tensor, context: Context, *, add: bool = False, scale: float = 1.0) -> None:
        numel, k = out.numel(), self._kept(out.numel())
        require_size(payload, 8 * k, type(self).__name__, numel)
        values = from_bytes(payload[: 4 * k], torch.float32)
        indices = from_bytes(payload[4 * k :], torch.int32).long()
        if k and (indices[0] < 0 or indices[-1] >= numel or (indices[1:] <= indices[:-1]).any()):
            raise PayloadError(f"TopK payload for {numel} elements: indices do not ascend from 0 to below {numel}")
        if not add:
            out.zero_()
        out.index_add_(0, indices, values.to(out.dtype), alpha=scale)

    def _kept(self, numel: int) -> int:
        return min(numel, max(1, round(self.density * numel)))
