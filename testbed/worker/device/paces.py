"""Dilations that a pilot orders of a training that goes on: each from a step on that all ranks are still to take."""

from __future__ import annotations


class Paces:
    """Ordered by one thread, asked by another."""

    def __init__(self) -> None:
        self._orders: list[tuple[int, float]] = []
        """(First step, counted from 1, and its dilation); a tuple is there whole or not at all."""

    def order(self, step: int, dilation: float) -> None:
        """Have steps from `step` on take `dilation`."""
        self._orders.append((step, dilation))

    def at(self, step: int) -> float | None:
        """Return the dilation ordered last of those for `step` or an earlier one; None if there is none."""
        return next((dilation for first, dilation in reversed(self._orders) if first <= step), None)
