"""What happens to each packet of a direction, drawn from a seed: pure, so that it is tested without a network.

Loss, duplicates and reordering are drawn packet by packet. Jitter is not: it varies with time (`varying_delay`).
"""

from __future__ import annotations

import random

from testbed.core.link_profile import LinkProfile
from testbed.orchestrator.emulation.shapers.varying_delay import VaryingDelay


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
