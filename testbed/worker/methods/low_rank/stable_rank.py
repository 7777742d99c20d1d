"""Cuttlefish's decisions: when to leave full rank, at which ranks, and how many first layers to keep. Arithmetic alone.

Wang et al., "Cuttlefish: Low-rank Model Training without All The Tuning", MLSys 2023, arXiv:2305.02538. The stable rank
of a matrix is the sum of the squares of its singular values over the largest of them: between 1 and its full rank.
What is said of the authors' public code is of hwang595/Cuttlefish.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

_ROUNDING = 1e-9
LAST_TWO, LAST = 2.5, 5.0
"""The threshold is so many times larger for the last layers that have not settled."""


def scaled_rank(full_rank: int, stable: float, initial: float, floor: float = 0.0) -> int:
    """The stable rank in proportion to what it was of initial weights, whose rank is full; rounded up.

    Differs from the authors' code, which cuts both stable ranks to whole numbers first.

    Args:
        floor: the least, as a share of the full rank. In the authors' code 1/5 for ResNet-50, 1/2 for DeiT.
    """
    least = max(1, math.ceil(floor * full_rank - _ROUNDING))
    return min(full_rank, max(least, math.ceil(stable * full_rank / initial - _ROUNDING)))


def smoothed(history: Sequence[float], window: int) -> list[float]:
    """An exponential moving average that begins with the first; a new value's weight is 2 / (window + 1)."""
    weight, found = 2 / (window + 1), list[float]()
    for value in history:
        found.append(value if not found else weight * value + (1 - weight) * found[-1])
    return found


def slopes(values: Sequence[float]) -> list[float]:
    """From one value to the next: half the difference of both neighbours, at the ends of the one there is."""
    last = len(values) - 1
    ends = [(max(0, at - 1), min(last, at + 1)) for at in range(len(values))]
    return [(values[after] - values[before]) / (after - before) for before, after in ends] if last else [0.0]


def has_settled(history: Sequence[float], window: int, tail: int, epsilon: float) -> bool:
    """Whether a layer's stable rank changes by `epsilon` or less, of the smoothed history and on average over its tail.

    Args:
        history: one stable rank each observation; no more than `window` of them settle nothing.
        tail: so many last slopes count.
        epsilon: ranks an observation. The authors' code, which observes once an epoch: 0.1, window 15, tail 11.
    """
    if len(history) <= window:
        return False
    ends = [abs(slope) for slope in slopes(smoothed(history, window))[-tail:]]
    return sum(ends) / len(ends) <= epsilon


class Detector:
    """Follows stable ranks of layers until all have settled. A layer that has is not asked again.

    Args:
        relaxed: the last two layers that have not settled may change `LAST_TWO` times as much, the last one `LAST`
            times: the authors' code has that for ResNet-18 and VGG-19.
    """

    def __init__(self, layers: Iterable[str], *, window: int, tail: int, epsilon: float, relaxed: bool) -> None:
        self._window, self._tail, self._epsilon, self._relaxed = window, tail, epsilon, relaxed
        self.history: dict[str, list[float]] = {name: [] for name in layers}
        self.settled: set[str] = set()

    def observe(self, stable: Mapping[str, float]) -> bool:
        """
        Returns:
            Whether all layers have settled.

        Raises:
            ValueError: `stable` is not of this detector's layers.
        """
        if stable.keys() != self.history.keys():
            raise ValueError(f"stable ranks of {', '.join(stable)}; these were to come: {', '.join(self.history)}")
        left = len(self.history) - len(self.settled)
        scale = {2: LAST_TWO, 1: LAST}.get(left, 1.0) if self._relaxed else 1.0
        for name, value in stable.items():
            self.history[name].append(value)
            if has_settled(self.history[name], self._window, self._tail, scale * self._epsilon):
                self.settled.add(name)
        return len(self.settled) == len(self.history)


@dataclass(frozen=True)
class Stack:
    """Neighbouring layers of one shape, and what one of them takes forward and backward."""

    layers: int
    full_s: float
    low_rank_s: float
    """At a fixed ratio: the authors take 1/4."""


def keep_by_times(stacks: Iterable[Stack], threshold: float) -> int:
    """How many first layers stay full: of all stacks before the first whose factors are `threshold` times as fast.

    Differs from the authors' code, in which the numbers for each model are written down.
    """
    kept = 0
    for stack in stacks:
        if stack.full_s >= threshold * stack.low_rank_s:
            return kept
        kept += stack.layers
    return kept
