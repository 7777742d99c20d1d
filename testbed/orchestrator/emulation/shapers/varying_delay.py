"""Jitter as a delay that varies slowly with time, so that packets need not wait for each other to keep their order.

Drawn for each packet, jitter under which no packet overtakes another is a longer delay on a loaded link: every packet
waits for the latest before it. So the delay belongs to the time at which a packet arrives. A standard normal value is
drawn for each knot, some jitters apart; between two, their mix is scaled so that it is standard normal at every moment,
and the distribution's spread is a function of it. The delay then seldom falls faster than time passes.
"""

from __future__ import annotations

import math
import random

from testbed.core.delays import SPREADS, knot_s
from testbed.core.link_profile import LinkProfile


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
