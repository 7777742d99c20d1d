from __future__ import annotations

import math

from torch import Tensor

from compressors.base.compressor import Context, FeedbackMode, Traits
from compressors.parts.selection import at_least, first_largest, rank_magnitude, sample_magnitudes
from compressors.parts.sparse import Sparsifier, kept_of
from testbed.core.parameters import CountOrZero, Fraction, Share

_STAGES = 5
"""Densities of the paper's schedule, the last one included: 25 %, 6.25 %, 1.5625 %, 0.4 %, 0.1 %."""
_ABOVE = 100
"""Sampled entries above the threshold, at least, so that the count is off by a tenth and not by more."""
_MUCH = 1.3
"""How many times as many as wanted are far more than expected."""


class DGC(Sparsifier):
    """Send about k largest entries, with momentum correction.

    Send about the k entries of largest magnitude, by a threshold from a sample; velocities are kept back.

    Lin, Han, Mao, Wang, Dally, "Deep Gradient Compression: Reducing the Communication Bandwidth for Distributed
    Training", ICLR 2018, arXiv:1712.01887. Momentum correction and factor masking are those of `MomentumFeedback`.
    Differs from the paper: thresholds are of buckets, not of layers; small buckets are sampled more; the warm-up goes
    by steps, not by epochs; no clipping, since a bucket does not know the norm of the whole gradient: clip before.

    Biased; not linear, so payloads are gathered, or averaged in two shots, which encodes twice. Use with
    momentum-corrected feedback. NaN and infinity are always among the first that are sent.
    Wire: k (1,) int32, values (k,) float32, then indices (k,) int32, ascending; 4 + 8k bytes with k about
    density * n: a tenth more or less is usual, and never more than 1.3 times as many. Zeros are never sent.
    Keeps no state.

    Args:
        density: Sent / all entries after the warm-up.
        sample: Sampled share of a bucket. Small buckets are sampled more, so that about 100 sampled entries are above
            the threshold.
        warmup_steps: Steps over which the density falls; 0: none. It falls in four equal stages: density**(1/5),
            density**(2/5), ... In a run of 80 steps these send 2 % of all entries on average, nearly all that is sent.
        momentum: Momentum; null: the optimizer's.

    Raises:
        ValueError: a parameter is out of its range, momentum is given without momentum-corrected feedback, or a bucket
            has more than 2**31 - 1 entries.
    """

    default_feedback = "momentum"

    def __init__(
        self,
        *,
        density: Share = 0.001,
        sample: Share = 0.01,
        warmup_steps: CountOrZero = 20,
        momentum: Fraction | None = None,
        feedback: FeedbackMode = "auto",
    ) -> None:
        if momentum is not None and feedback in (False, "off", "plain", "ef21"):
            raise ValueError(f"momentum={momentum}: has no meaning with feedback={feedback or 'off'}")
        super().__init__(feedback=feedback)
        self.traits = Traits(fixed_size=False, feedback="required", contraction=0.0)
        self.density, self.sample, self.warmup_steps, self.momentum = density, sample, warmup_steps, momentum

    def density_at(self, step: int) -> float:
        """Return the density in a step: that of its stage of the warm-up, or the last one."""
        if step >= self.warmup_steps:
            return self.density
        stage = step * (_STAGES - 1) // self.warmup_steps
        return float(self.density ** ((stage + 1) / _STAGES))

    def kept(self, numel: int, context: Context) -> int:
        return kept_of(self.density_at(context.step), numel)

    def select(self, tensor: Tensor, context: Context) -> tuple[Tensor, Tensor]:
        numel, k = tensor.numel(), self.kept(tensor.numel(), context)
        count = max(self.sample * numel, _ABOVE / self.density_at(context.step))
        sampled = sample_magnitudes(tensor, math.ceil(count), context)
        if not numel:
            return at_least(tensor, 0.0)
        indices, values = at_least(tensor, rank_magnitude(sampled, k / numel * len(sampled)))
        if len(indices) > _MUCH * k:
            best = first_largest(values, k)
            indices, values = indices.index_select(0, best), values.index_select(0, best)
        return indices, values
