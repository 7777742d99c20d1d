"""Leaves out what repeats itself: with many ranks a ring has thousands of rounds, after some of them all alike."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from testbed.analysis.simulator.model.network import REMEMBERED, Network, Times
from testbed.analysis.simulator.timeline.rings import Ring

MIN_RANKS = 32
_LOOK_EVERY = 8
"""Windows between two looks."""
_ALIKE = 1e-9
"""Of the time a window takes, by which ranks may differ in how long theirs took."""


class PeriodSkip:
    """Follows rings that are under way together, and moves all on at once by as many windows as are alike.

    A window is as many messages as the network remembers, so that what it remembers is in the same place after each.
    """

    def __init__(self, network: Network) -> None:
        self._network = network
        self._rings: tuple[Ring, ...] = ()
        self._advances = 0
        self._before: Times | None = None

    def after_advance(self, active: Sequence[object]) -> None:
        """To be called after each single advance of any of `active`."""
        rings = tuple(one for one in active if isinstance(one, Ring) and not one.is_done)
        if self._network.size < MIN_RANKS or len(rings) != len(active) or rings != self._rings:
            self._rings, self._advances, self._before = rings, 0, None
            return
        self._advances += 1
        at = self._advances % (_LOOK_EVERY * REMEMBERED)
        if at == 0:
            self._before = self._state()
        elif at == REMEMBERED and self._before is not None:
            self._leap(self._state() - self._before)
            self._before = None

    def _state(self) -> Times:
        parts = [part for ring in self._rings for part in ring.times()]
        state: Times = np.concatenate([*parts, *self._network.times(self._rings[0].links)])
        return state

    def _leap(self, moved: Times) -> None:
        by = moved[np.isfinite(moved)]
        shift_s = float(by.max(initial=0.0))
        if shift_s <= 0 or shift_s - by.min() > _ALIKE * shift_s:
            return
        each = REMEMBERED // len(self._rings)
        windows = min(ring.messages_left for ring in self._rings) // each - 1
        if windows < 1:
            return
        for ring in self._rings:
            ring.move(windows * each, windows * shift_s)
        self._network.move(self._rings[0].links, windows * shift_s)
