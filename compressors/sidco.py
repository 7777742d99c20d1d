from __future__ import annotations

import math
from typing import Annotated, Any

import torch
from torch import Tensor

from compressors.base.compressor import Context, FeedbackMode, Traits
from compressors.parts.selection import at_least_one, sample_magnitudes
from compressors.parts.sparse import Sparsifier, kept_of
from testbed.core.kinds import Choice, Whole
from testbed.core.parameters import Share

DISTRIBUTIONS = ("exponential", "gamma", "pareto")
_FIRST = 0.25
"""Share that the first of several stages leaves."""
_SAMPLES = 1 << 18
_EVERY, _OFF = 5, 0.2
"""Encodings after which the number of stages may change, and the share by which the count must then be off."""


class SIDCo(Sparsifier):
    """Send entries above a threshold from a fitted distribution.

    Send the entries above a threshold that a fitted distribution says a share `density` of them exceeds.

    Abdelmoniem, Elzanaty, Alouini, Canini, "An Efficient Statistical-based Gradient Compression Technique for
    Distributed Training Systems", MLSys 2021, arXiv:2101.10761. Magnitudes are taken to be exponential, gamma or
    generalised Pareto, and fitted by moments: for the exponential the threshold is mean * log(1 / density). With more
    than one stage the first leaves 25 %, and each further one fits the excess of what is left, so that only the tail
    must have the right form (exponential, or else Pareto); these share what remains of the density equally.
    Differs from the paper: moments come from a sample of about 2**18 entries at most; the largest entry is always sent;
    stages go on being added, or taken away, for as long as that helps, rather than by whether too few or too many were
    sent.

    Biased; not linear, so payloads are gathered, or averaged in two shots, which encodes twice. Use with error
    feedback. NaN and infinity are always sent; where the sample holds some, nothing else is.
    Wire: k (1,) int32, values (k,) float32, then indices (k,) int32, ascending; 4 + 8k bytes. k is density * n as far
    as the distribution is right: within 20 % after some steps, where some number of stages gives that; else it moves to
    and fro between the nearest. Moments are summed in float64 and thresholds rounded to float32, so that devices agree
    but for a rare last bit.
    Keeps of each bucket the number of stages, which begins with one, and how far off the last counts were.

    Args:
        density: Kept / all entries.
        distribution: Distribution of magnitudes that is fitted.
        stages: Number of fits; 0: adaptive. It adapts to the counts found.

    Raises:
        ValueError: a parameter is out of its range, or a bucket has more than 2**31 - 1 entries.
    """

    def __init__(
        self,
        *,
        density: Share = 0.01,
        distribution: Annotated[str, Choice(DISTRIBUTIONS)] = "exponential",
        stages: Annotated[int, Whole(0, 64)] = 0,
        feedback: FeedbackMode = "auto",
    ) -> None:
        super().__init__(feedback=feedback)
        self.density, self.distribution, self.stages = density, distribution, stages
        self.traits = Traits(fixed_size=False, feedback="required", contraction=0.0)
        self._most_stages = max(1, math.ceil(-math.log2(density))) if density < _FIRST else 1
        self._kept: dict[str, dict[str, float]] = {}

    def kept(self, numel: int, context: Context) -> int:
        return kept_of(self.density, numel)

    def select(self, tensor: Tensor, context: Context) -> tuple[Tensor, Tensor]:
        fresh = {"stages": 1, "way": 1, "off": math.inf, "total": 0.0, "count": 0}
        record = self._kept.setdefault(context.state_key, fresh)
        stages = self.stages or int(record["stages"])
        sample = sample_magnitudes(tensor, _SAMPLES, context).view(torch.float32).double()
        indices, values = at_least_one(tensor, self.threshold_of(sample, stages), context)
        if not self.stages:
            self._adapt(record, len(indices) / max(self.kept(tensor.numel(), context), 1))
        return indices, values

    def threshold_of(self, magnitudes: Tensor, stages: int) -> float:
        """Return what a share `density` of `magnitudes`, float64, exceeds; infinite if there are NaN or infinity."""
        left = self.density
        threshold = 0.0
        for stage in range(stages):
            excess = magnitudes[magnitudes > threshold] - threshold if stage else magnitudes
            if not len(excess):
                break
            share = left ** (1 / (stages - stage)) if stage or stages == 1 else max(_FIRST, self.density)
            left /= share
            form = "pareto" if stage and self.distribution == "gamma" else self.distribution
            threshold += _exceeded(excess, share, form)
            if not math.isfinite(threshold):
                return math.inf
        return threshold

    def _adapt(self, record: dict[str, float], achieved: float) -> None:
        record["total"] += achieved
        record["count"] += 1
        if record["count"] < _EVERY:
            return
        off = abs(record["total"] / record["count"] - 1)
        record["total"], record["count"] = 0.0, 0
        if off > _OFF:
            worse, stages = off > record["off"], record["stages"]
            way = -record["way"] if worse or not 1 <= stages + record["way"] <= self._most_stages else record["way"]
            record["stages"] = min(max(stages + way, 1), self._most_stages)
            record["way"] = way
        record["off"] = off

    def state_dict(self) -> dict[str, Any]:
        return {key: dict(record) for key, record in self._kept.items()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._kept = {key: dict(record) for key, record in state.items()}


def _exceeded(magnitudes: Tensor, share: float, form: str) -> float:
    """Return what a share of a distribution exceeds that has the moments of `magnitudes`."""
    mean = float(magnitudes.mean())
    if form == "exponential" or not mean:
        return -mean * math.log(share)
    if form == "gamma":
        return _gamma_exceeded(magnitudes, mean, share)
    variance = float(magnitudes.var(unbiased=False))
    if not variance > 1e-9 * mean**2:
        return mean
    shape = 0.5 * (1 - mean**2 / variance)
    scale = 0.5 * mean * (1 + mean**2 / variance)
    return -scale * math.log(share) if abs(shape) < 1e-6 else scale * math.expm1(-shape * math.log(share)) / shape


def _gamma_exceeded(magnitudes: Tensor, mean: float, share: float) -> float:
    """Return the paper's closed form for shapes up to 1; larger ones count as 1, and zeros have no logarithm."""
    s = math.log(mean) - float(magnitudes[magnitudes > 0].log().mean())
    shape = min(1.0, (3 - s + math.sqrt((s - 3) ** 2 + 24 * s)) / (12 * s)) if s > 1e-9 else 1.0
    return -mean / shape * (math.log(share) + math.lgamma(shape))
