"""How well predictions order what was measured: Spearman's rank correlation, regret of the first, place of the best.

After the questions that Li et al., "AMP", NeurIPS 2022 (arXiv:2210.07297), section 4.4, ask of a cost model. Predicted
and measured are seconds in the same order; less is better.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from testbed.core.parameters import number, raise_all


@dataclass(frozen=True)
class Agreement:
    spearman: float | None
    """None: one side is all equal, or there is one plan alone, so nothing is ordered."""
    regret: float
    """Measured time of the plan predicted best over that of the best, less 1; of equal predictions the worst counts."""
    best_place: int
    """From 1: of the plan measured best, among the predictions; of equal predictions the last counts."""


def agreement(predicted: Sequence[float], measured: Sequence[float]) -> Agreement:
    """
    Raises:
        ValueError: there is none, one is not a finite time above 0, or they are not equally many; all of it, one a
            line.
    """
    raise_all(*_faults(predicted, measured))
    best_s = min(measured)
    first = max(m for p, m in zip(predicted, measured, strict=True) if p == min(predicted))
    place = min(sum(other <= p for other in predicted) for p, m in zip(predicted, measured, strict=True) if m == best_s)
    return Agreement(spearman(predicted, measured), first / best_s - 1, place)


def spearman(a: Sequence[float], b: Sequence[float]) -> float | None:
    """Pearson's correlation of ranks, equal values having the mean of theirs; None: one side is all equal.

    Spearman, "The Proof and Measurement of Association between Two Things", Am. J. Psychology 15, 1904.
    """
    raise_all(None if len(a) == len(b) else f"{len(a)} values against {len(b)}; give as many of both")
    ranks_a, ranks_b, mean = _ranks(a), _ranks(b), (len(a) + 1) / 2
    squares_a = sum((rank - mean) ** 2 for rank in ranks_a)
    squares_b = sum((rank - mean) ** 2 for rank in ranks_b)
    if squares_a == 0 or squares_b == 0:
        return None
    products = sum((x - mean) * (y - mean) for x, y in zip(ranks_a, ranks_b, strict=True))
    return products / math.sqrt(squares_a * squares_b)


def _ranks(values: Sequence[float]) -> list[float]:
    """From 1; of equal ones the mean."""
    ordered = sorted(values)
    return [ordered.index(value) + (ordered.count(value) + 1) / 2 for value in values]


def _faults(predicted: Sequence[float], measured: Sequence[float]) -> Iterator[str | None]:
    yield None if predicted else "predicted: there is no plan; give one or more"
    if len(predicted) != len(measured):
        yield f"measured: {len(measured)} for {len(predicted)} plans; give one for each"
    for name, values in (("predicted", predicted), ("measured", measured)):
        for index, value in enumerate(values):
            yield number(f"{name}[{index}]", value, above=0, below=math.inf)
