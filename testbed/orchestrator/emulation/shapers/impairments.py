"""What happens to each packet of a direction, drawn from a seed: pure, so that it is tested without a network.

Loss, duplicates and reordering are drawn packet by packet. Jitter is not: it varies with time (`VaryingDelay`).
"""

from __future__ import annotations

import math
import random

from testbed.core.spec.link_profile import LinkProfile
from testbed.orchestrator.emulation.shapers.delay import SPREADS, knot_s

# Jitter as a delay that varies slowly with time, so that packets need not wait for each other to keep their order.


class VaryingDelay:
    """A function of the seed and of the time since the link began: the same in every run, whatever packets ask it."""

    def __init__(self, profile: LinkProfile, seed: int) -> None:
        self._seed = seed
        self._random = random.Random()
        self.set(profile)

    def set(self, profile: LinkProfile) -> None:
        self._delay_s = profile.delay_s
        self._jitter_s = profile.jitter_s
        self._spread = SPREADS[profile.jitter_distribution]
        self._knots_s = 1 / knot_s(profile.jitter_s)
        self._index = -1
        """Of the knot before the last packet; -1 before the first."""
        self._before = self._after = 0.0

    def _knot(self, index: int) -> float:
        """From its own seed, since time may leap over any number of knots."""
        self._random.seed(self._seed << 40 | index)
        return self._random.gauss(0.0, 1.0)

    def at(self, since_s: float) -> float:
        """Of a packet that arrives so long after the link began; never below 0."""
        if not self._jitter_s:
            return self._delay_s
        position = since_s * self._knots_s
        index = int(position)
        if index != self._index:
            self._before = self._after if index == self._index + 1 and self._index >= 0 else self._knot(index)
            self._after = self._knot(index + 1)
            self._index = index
        late = position - index
        early = 1.0 - late
        normal = (early * self._before + late * self._after) / math.sqrt(early * early + late * late)
        delay_s = self._delay_s + self._jitter_s * self._spread(normal)
        return delay_s if delay_s > 0.0 else 0.0


class Impairments:
    """Whether a packet is lost, doubled or early, and its delay. The same seed draws the same."""

    def __init__(self, profile: LinkProfile, seed: int) -> None:
        self._random = random.Random(seed)
        self._is_bad = False
        self._delay = VaryingDelay(profile, seed)
        self.set(profile)

    def set(self, profile: LinkProfile) -> None:
        """From the next packet on; the sequence of draws goes on."""
        self.profile = profile
        self.loss_variance = profile.loss_variance
        self._chain = profile.gilbert_elliott
        self._delay.set(profile)
        self.delay_s = self._delay.at
        """Of a packet that arrives so long after the link began."""
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

    def is_doubled(self) -> bool:
        ratio = self.profile.duplicate_ratio
        return ratio > 0 and self._random.random() < ratio

    def overtakes(self) -> bool:
        ratio = self.profile.reorder_ratio
        return ratio > 0 and self._random.random() < ratio
