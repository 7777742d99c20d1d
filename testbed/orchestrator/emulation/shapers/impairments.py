"""What happens to each packet of a direction, drawn from a seed: pure, so that it is tested without a network."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any, ClassVar

from testbed.core.topology import LinkProfile

_PARETO_SHAPE = 3.0
_PARETO_MEAN = _PARETO_SHAPE / (_PARETO_SHAPE - 1)
_PARETO_DEVIATION: float = (_PARETO_SHAPE / ((_PARETO_SHAPE - 1) ** 2 * (_PARETO_SHAPE - 2))) ** 0.5


class Impairments:
    """Draws, packet by packet, whether it is lost, late, doubled or early. The same seed draws the same."""

    def __init__(self, profile: LinkProfile, seed: int) -> None:
        self._random = random.Random(seed)
        self._is_bad = False
        self.set(profile)

    def set(self, profile: LinkProfile) -> None:
        """From the next packet on; the sequence of draws goes on."""
        self.profile = profile
        self.loss_variance = profile.loss_variance
        self._chain = profile.gilbert_elliott
        self.draws_delay = bool(profile.jitter_s)
        self.draws_rest = bool(profile.duplicate_ratio or profile.reorder_ratio)

    def is_lost(self) -> bool:
        ratio = self.profile.loss_ratio
        chain = self._chain
        if chain is None:
            return ratio > 0 and self._random.random() < ratio
        was_bad = self._is_bad
        change = chain.leave_bad_ratio if was_bad else chain.enter_bad_ratio
        if self._random.random() < change:
            self._is_bad = not was_bad
        return self._random.random() < (chain.bad_loss_ratio if was_bad else chain.good_loss_ratio)

    def delay_s(self) -> float:
        """Never below 0."""
        profile = self.profile
        if not self.draws_delay:
            return profile.delay_s
        spread_s: float = self._spread[profile.jitter_distribution](self, profile.jitter_s)
        return max(0.0, float(profile.delay_s + spread_s))

    def is_doubled(self) -> bool:
        ratio = self.profile.duplicate_ratio
        return ratio > 0 and self._random.random() < ratio

    def overtakes(self) -> bool:
        ratio = self.profile.reorder_ratio
        return ratio > 0 and self._random.random() < ratio

    def _uniform(self, jitter_s: float) -> float:
        return self._random.uniform(-jitter_s, jitter_s)

    def _normal(self, jitter_s: float) -> float:
        return self._random.gauss(0.0, jitter_s)

    def _pareto(self, jitter_s: float) -> float:
        """Long tail towards late: shape 3, moved to mean 0 and scaled to the deviation asked."""
        return (self._random.paretovariate(_PARETO_SHAPE) - _PARETO_MEAN) / _PARETO_DEVIATION * jitter_s

    _spread: ClassVar[dict[str, Callable[[Any, float], float]]] = {
        "uniform": _uniform,
        "normal": _normal,
        "pareto": _pareto,
    }
