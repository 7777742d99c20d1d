"""Medians of what is done several times."""

from __future__ import annotations

import statistics
import time
from collections import defaultdict
from collections.abc import Callable

_BUDGET_S = 1.5
_MIN_REPEATS, _MAX_REPEATS = 3, 20


def repeated(once: Callable[[], dict[str, float]], budget_s: float = _BUDGET_S) -> dict[str, float]:
    """Medians, by key, of what `once` gives; its first two answers do not count."""
    found: dict[str, list[float]] = defaultdict(list)
    end_s = time.monotonic() + budget_s
    for repeat in range(-2, _MAX_REPEATS):
        values = once()
        if repeat >= 0:
            for key, value in values.items():
                found[key].append(value)
        if repeat + 1 >= _MIN_REPEATS and time.monotonic() > end_s:
            break
    return {key: statistics.median(values) for key, values in found.items()}
