from __future__ import annotations

import math

import torch
from torch import Tensor

from compressors.base.compressor import Compressor, Context, FeedbackMode, Layout, Traits
from compressors.base.payload import PayloadError, from_bytes, require_bytes, to_bytes
from compressors.parts.selection import at_least
from compressors.parts.sparse import kept_of, require_ascending, require_indices, scatter
from testbed.core.parameters import Share

_SAMPLES = 1 << 16
"""Entries from which thresholds are found."""
_HEADER = 16


class AdaQ(Compressor):
    """Send the most positive and the most negative entries as two means.

    Dryden, Moon, Jacobs, Van Essen, "Communication Quantization for Data-Parallel Training of Deep Neural Networks",
    MLHPC 2016, section on adaptive quantization: a fixed proportion of positive and one of negative entries. Recalled.
    Differs from the paper: indices are int32, not differences in a code of variable length; thresholds of a bucket of
    more than 65536 entries are those of a sample of as many, so that 1 % are kept within 5 % nearly always; residuals
    are kept by `ErrorFeedback`.

    A share `density` of the positive entries is kept, one at least, and the same share of the negative ones. Entries
    equal to the smallest kept one are all kept, zeros never. Biased; not linear, so payloads are gathered, or averaged
    in two shots, which encodes twice: bounds are of one encoding. |x - C(x)|^2 <= |x|^2. Use with error feedback. NaN
    and infinity are always kept, and their mean is NaN or infinity.
    Wire: two means float32 and two counts int32, of positive and of negative entries; then the indices of the positive
    ones, int32, ascending, and those of the negative ones; 16 + 4 k bytes.
    Keeps no state.

    Args:
        density: Kept / all entries of either sign.

    Raises:
        ValueError: density is not in (0, 1], or a bucket has more than 2**31 - 1 entries.
    """

    is_sparse = True
    traits = Traits(fixed_size=False, feedback="required", contraction=0.0)

    def __init__(self, *, density: Share = 0.01, feedback: FeedbackMode = "auto") -> None:
        super().__init__(feedback=feedback)
        self.density = density

    def payload_bytes(self, layout: Layout, context: Context) -> int:
        return _HEADER + 4 * kept_of(self.density, layout.numel)

    def encode(self, tensor: Tensor, context: Context) -> Tensor:
        require_indices(tensor.numel(), type(self).__name__)
        above, below = self._thresholds(tensor, context)
        indices, values = at_least(tensor, min(above, -below))
        means, lists = [], []
        for chosen in (~(values < above), values <= below):  # NaN is among the first
            mine = values[chosen]
            means.append(mine.double().mean() if len(mine) else mine.new_zeros((), dtype=torch.float64))
            lists.append(indices[chosen].to(torch.int32))
        counts = torch.tensor([len(found) for found in lists], dtype=torch.int32, device=tensor.device)
        return torch.cat([to_bytes(part) for part in (torch.stack(means).float(), counts, *lists)])

    def decode(self, payload: Tensor, out: Tensor, context: Context, *, add: bool = False, scale: float = 1.0) -> None:
        name, numel = type(self).__name__, out.numel()
        require_bytes(payload)
        if len(payload) < _HEADER:
            raise PayloadError(f"{name} payload: {len(payload)} bytes are less than the {_HEADER} of its header")
        means = from_bytes(payload[:8], torch.float32)
        positive, negative = (int(count) for count in from_bytes(payload[8:_HEADER], torch.int32))
        if min(positive, negative) < 0 or len(payload) != _HEADER + 4 * (positive + negative):
            raise PayloadError(
                f"{name} payload for {numel} elements: {len(payload)} bytes, with {positive} positive and {negative}"
                " negative entries"
            )
        indices = from_bytes(payload[_HEADER:], torch.int32)
        for found in (indices[:positive], indices[positive:]):
            require_ascending(found, numel, name)
        values = torch.cat([means[:1].expand(positive), means[1:].expand(negative)])
        scatter(out, indices, values, add, scale)

    def _thresholds(self, tensor: Tensor, context: Context) -> tuple[float, float]:
        """Return (the least positive entry to keep, the least magnitude of a negative one)."""
        # odd, since rows of matrices mostly have even lengths; one, where all entries are not much more
        stride = tensor.numel() // _SAMPLES | 1 if tensor.numel() >= 2 * _SAMPLES else 1
        offset = context.random("sample", shared=False).integer(stride)
        sample = tensor[offset::stride].float()
        return self._threshold(sample), -self._threshold(sample.neg())

    def _threshold(self, sample: Tensor) -> float:
        """Return the smallest of the largest positive entries; if there are none, any positive entry counts."""
        positive = sample[(sample > 0) & (sample < math.inf)]
        if not len(positive):
            return torch.finfo(torch.float32).smallest_normal
        return float(positive.topk(kept_of(self.density, len(positive)), sorted=False).values.min())
