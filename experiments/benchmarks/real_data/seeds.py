"""Number of seeds of a row, and what they say: within half a point of the baseline, not within, or undecided."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from experiments.common.tables import HALF_A_POINT, half_width

BASE = "compressor=none"
MIN_SEEDS, MAX_SEEDS = 3, 7
WITHIN, NOT_WITHIN, UNDECIDED = "within half a point", "not within", "undecided"

Row = dict[int, dict[str, Any]]
"""Results of one row by seed."""


def difference(result: Mapping[str, Any], base: Mapping[str, Any]) -> float:
    """Return how much better a result is than the baseline of the same seed, 0.01 a point; -inf if it diverged.

    A point of accuracy is a hundredth; of bits per byte it is a hundredth of the baseline's.
    """
    value, usual = result["metric"]["value"], base["metric"]["value"]
    if value is None or usual is None:
        return -math.inf
    return float(value - usual) if result["higher_is_better"] else float((usual - value) / usual)


def differences(row: Row, base: Row) -> list[float]:
    """Return the differences of all seeds that both have, in the order of the seeds."""
    return [
        difference(row[seed], base[seed]) for seed in sorted(row.keys() & base.keys()) if "refused" not in row[seed]
    ]


def decided(found: Sequence[float]) -> str:
    """Return the verdict on a row, by the 95 % interval of the mean of its differences.

    A row is within half a point if it is not more than that worse; a better one is. One that diverged is not.
    """
    if any(math.isinf(one) for one in found):
        return NOT_WITHIN
    half = half_width(found)
    if half is None or len(found) < MIN_SEEDS:
        return UNDECIDED
    mean = statistics.fmean(found)
    if mean - half >= -HALF_A_POINT:
        return WITHIN
    return NOT_WITHIN if mean + half < -HALF_A_POINT else UNDECIDED


def wanted(row: Row, base: Row) -> int:
    """Return how many seeds a row takes, from the first on, as far as its results tell yet; 1 if it is not possible."""
    if "refused" in row.get(0, {}):
        return 1
    count = MIN_SEEDS
    while count < MAX_SEEDS and all(seed in row and seed in base for seed in range(count)):
        so_far = {seed: row[seed] for seed in range(count)}
        if decided(differences(so_far, base)) != UNDECIDED:
            break
        count += 1
    return count


def asked(rows: Mapping[str, Row]) -> Iterator[tuple[str, int]]:
    """Yield row and seed of all trainings of a workload that are needed as far as is known, the first seeds first.

    Args:
        rows: Results of each row, empty where there are none yet; the baseline is among them.
    """
    counts = {name: wanted(row, rows[BASE]) for name, row in rows.items() if name != BASE}
    counts[BASE] = max(counts.values(), default=MIN_SEEDS)
    for seed in range(MAX_SEEDS):
        yield from ((name, seed) for name in rows if seed < counts[name])
