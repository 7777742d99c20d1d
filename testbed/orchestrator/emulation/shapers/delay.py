"""A direction's delay as a random quantity: what jitter makes of it, and how far from it probes may be by chance alone.

The spread around the delay is given as a function of a standard normal quantity, so that a slowly varying normal one
makes a slowly varying delay of any distribution.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import NormalDist

from testbed.core.spec.link_profile import LinkProfile

CUT_DEVIATIONS = 4.0
"""No tail is longer."""
KNOT_JITTERS, MIN_KNOT_S = 8.0, 2e-3
"""A delay line takes this many times the jitter, and at least so long, to go from one drawn delay to the next."""
MEMORY_KNOTS = 1.6
"""Integral of the correlation over time, in knots: delays this far apart are as good as independent."""
DOUBT_DEVIATIONS = 4.0
CHANCE = 1e-5
"""Of blaming the least of some probes that are what they should be."""
_ROOT_HALF = math.sqrt(0.5)
_PARETO_SHAPE = 3
_NORMAL = NormalDist()


def _cut_pareto() -> tuple[float, float, float]:
    """Mean, deviation and cut of a Pareto quantity of shape 3 and least value 1, cut at four deviations of its own."""
    cut = 4.0
    for _ in range(100):
        mean = 1.5 - 0.5 / cut**2
        deviation = math.sqrt(3 - 2 / cut - mean**2)
        cut = mean + CUT_DEVIATIONS * deviation
    return mean, deviation, cut


_PARETO_MEAN, _PARETO_DEVIATION, _ = _cut_pareto()


def _uniform(normal: float) -> float:
    return math.erf(normal * _ROOT_HALF)


def _normal(normal: float) -> float:
    return max(-CUT_DEVIATIONS, min(normal, CUT_DEVIATIONS))


def _pareto(normal: float) -> float:
    """Long tail towards late, moved to mean 0 and scaled to deviation 1."""
    above = 0.5 * math.erfc(normal * _ROOT_HALF)
    if above < 1e-3:  # far beyond the cut
        return CUT_DEVIATIONS
    quantity: float = above ** (-1 / _PARETO_SHAPE)
    return min((quantity - _PARETO_MEAN) / _PARETO_DEVIATION, CUT_DEVIATIONS)


SPREADS: dict[str, Callable[[float], float]] = {"uniform": _uniform, "normal": _normal, "pareto": _pareto}
"""By distribution: from a standard normal quantity to the distance from the mean, in units of the jitter."""
_DEVIATIONS = {"uniform": 1 / math.sqrt(3), "normal": 1.0, "pareto": 1.0}


def spread_at(distribution: str, share: float) -> float:
    """The quantile: this share of delays lies less than so many jitters above the mean."""
    return SPREADS[distribution](_NORMAL.inv_cdf(share))


def knot_s(jitter_s: float) -> float:
    return max(KNOT_JITTERS * jitter_s, MIN_KNOT_S)


@dataclass(frozen=True)
class Delay:
    """One way."""

    asked_s: float
    jitter_s: float
    distribution: str
    early_ratio: float = 0.0
    """Share of packets that are not delayed at all. Kept only beside jitter: without, medians are compared."""

    @classmethod
    def of(cls, profile: LinkProfile) -> Delay:
        early_ratio = profile.reorder_ratio if profile.jitter_s else 0.0
        return cls(profile.delay_s, profile.jitter_s, profile.jitter_distribution, early_ratio)

    @property
    def _delayed_s(self) -> float:
        """Mean of the delayed: as asked, but for what a normal tail would have below 0."""
        if self.distribution != "normal" or not self.jitter_s:
            return self.asked_s
        room = self.asked_s / self.jitter_s
        return self.asked_s + self.jitter_s * (_NORMAL.pdf(room) - room * _NORMAL.cdf(-room))

    @property
    def mean_s(self) -> float:
        return (1 - self.early_ratio) * self._delayed_s

    @property
    def deviation_s(self) -> float:
        within_s = self.jitter_s * _DEVIATIONS[self.distribution]
        early = self.early_ratio
        return math.sqrt((1 - early) * within_s**2 + early * (1 - early) * self._delayed_s**2)

    def independent(self, probes: int, span_s: float) -> float:
        """As many independent draws tell as much of the mean: neighbours in time are alike."""
        return max(1.0, min(probes, span_s / (MEMORY_KNOTS * knot_s(self.jitter_s))))

    def quantile_s(self, share: float) -> float:
        return (
            max(0.0, self.asked_s + self.jitter_s * spread_at(self.distribution, share))
            if self.jitter_s
            else self.asked_s
        )


def least_s(ways: Sequence[Delay], probes: int, span_s: float) -> tuple[float, float]:
    """Between these lies the least of so many probes over these ways, but for a small chance on either side.

    It is below `low` only if some way of some probe was; above `high` only if in no probe all ways were at once below
    their part of it.
    """
    low = CHANCE / (probes * len(ways))
    independent = min(way.independent(probes, span_s) for way in ways)
    high = (1 - CHANCE ** (1 / independent)) ** (1 / len(ways))
    return sum(way.quantile_s(low) for way in ways), sum(way.quantile_s(high) for way in ways)


def mean_doubt_s(ways: Sequence[Delay], probes: int, span_s: float) -> float:
    """How far the mean of probes over these ways, one after the other, may be from the true one by chance."""
    variance = sum(way.deviation_s**2 / way.independent(probes, span_s) for way in ways)
    return DOUBT_DEVIATIONS * math.sqrt(variance)
