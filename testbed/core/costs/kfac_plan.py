"""Where distributed K-FAC inverts which factor, and which factors travel together. Arithmetic alone.

K-FAC keeps two symmetric factors a layer: "a", of its inputs, and "g", of the gradients of its outputs. Factors come in
order of readiness (`in_order`); their owners, and whatever else is said of them, in parallel lists.

What all P workers together send in a second-order step, besides gradients; K elements in all factors' triangles, G in
the gradients of their layers:

| variant  | factors                        | results                                           |
|---|---|---|
| D-KFAC   | summed everywhere: 2 (P - 1) K | none: everyone inverts everything                 |
| MPD-KFAC | summed everywhere: 2 (P - 1) K | (P - 1) K                                         |
| SPD-KFAC | summed everywhere: 2 (P - 1) K | (P - 1) times the elements of factors with an owner |
| PAD-KFAC | summed at the owner: (P - 1) K | (P - 1) K; or G for K, where a layer's factors have one owner |
| DP-KFAC  | none: the owner's own          | (P - 1) G                                         |

An inverse travels as its triangle, as it is symmetric; an eigenbasis would not.
"""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Callable, Sequence

from testbed.core.costs.fusion import Cost, Gradient, cut, merged
from testbed.core.device.factored_layer import ELEMENT_BYTES, Factor, FactoredLayer

EVERYWHERE = None
"""The owner of a factor that every worker inverts by itself: its inverse is not communicated."""
Owners = Sequence[int | None]


def in_order(layers: Sequence[FactoredLayer]) -> list[Factor]:
    """By readiness: "a" of every layer as forward reaches it, then "g" of every layer as backward does.

    Args:
        layers: in the order of forward.
    """
    return [layer.factor("a") for layer in layers] + [layer.factor("g") for layer in reversed(layers)]


def round_robin(count: int, workers: int) -> list[int]:
    """The owners of `count` factors in turn.

    MPD-KFAC, after Osawa et al., "Large-Scale Distributed Second-Order Optimization Using Kronecker-Factored
    Approximate Curvature for Deep Convolutional Neural Networks", CVPR 2019, arXiv:1811.12019.
    """
    return [index % workers for index in range(count)]


def balanced(
    factors: Sequence[Factor],
    workers: int,
    invert_s: Callable[[Factor], float],
    broadcast_s: Callable[[Factor], float],
) -> list[int | None]:
    """SPD-KFAC's load-balanced placement: Shi et al., "Accelerating Distributed K-FAC with Smart Parallelism of
    Computing and Communication Tasks", ICDCS 2021, arXiv:2107.06533.

    A factor is `EVERYWHERE` if to invert it costs less than to broadcast its inverse. Others are shared out as by
    `by_load`; the load is the sum of dimensions, as the authors have it, not of seconds. Those of `EVERYWHERE` burden
    all workers alike and so count for none.

    Args:
        invert_s: seconds of one worker for one factor.
        broadcast_s: seconds of a broadcast of its inverse.
    """
    owners: list[int | None] = [EVERYWHERE] * len(factors)
    owned = [i for i, factor in enumerate(factors) if invert_s(factor) >= broadcast_s(factor)]
    for index, owner in zip(owned, by_load([factors[i].dimension for i in owned], workers), strict=True):
        owners[index] = owner
    return owners


def by_load(weights: Sequence[float], workers: int) -> list[int]:
    """The owner of each item: the heaviest first, each to the worker with the least so far; of equals to the lowest.

    For DP-KFAC's layers too: Zhang et al., "Scalable K-FAC Training for Deep Neural Networks with Distributed
    Preconditioning", IEEE TCC 2022, arXiv:2206.15143.
    """
    owners, load = [0] * len(weights), [0.0] * workers
    for index in sorted(range(len(weights)), key=lambda i: -weights[i]):  # stable: of equal weights the first
        owners[index] = load.index(min(load))
        load[owners[index]] += weights[index]
    return owners


def blocks(weights: Sequence[float], workers: int) -> list[int]:
    """The owner of each item where each worker has a run of them, in order, and the heaviest run is the least possible.

    PAD-KFAC's block partition: neighbours have one owner, so that they can share one reduction. Nobody is left without
    an item while there are enough; the first workers have the heavier runs. Differs from the authors' public code:
    searched by bisection, not by dynamic programming; both are exact.
    """
    sums = [0.0, *itertools.accumulate(weights)]
    low, high = max(weights, default=0.0), sums[-1]
    if not _fits(sums, low, workers):
        # ends at two neighbouring floats: `low` does not fit, `high` does
        while low < (middle := (low + high) / 2) < high:
            low, high = (low, middle) if _fits(sums, middle, workers) else (middle, high)
        low = high
    owners: list[int] = []
    for worker in range(workers):
        begin = len(owners)
        # one item remains for each worker that is still to come
        end = min(_reach(sums, begin, low), max(begin + 1, len(weights) - (workers - 1 - worker)))
        owners += [worker] * (end - begin)
    return owners


def _reach(sums: Sequence[float], begin: int, most: float) -> int:
    """The end of the longest run from `begin` on that weighs `most` or less."""
    return bisect.bisect_right(sums, sums[begin] + most) - 1


def _fits(sums: Sequence[float], most: float, workers: int) -> bool:
    end = 0
    for _ in range(workers):
        end = _reach(sums, end, most)
    return end == len(sums) - 1


def groups(factors: Sequence[Factor], cost: Cost, owners: Owners | None = None) -> list[list[int]]:
    """Indices of the factors that share one reduction, by `core.costs.fusion.merged`.

    The last "a" may share one with the first "g". Differs from SPD-KFAC, which merges either side by itself.

    Args:
        cost: of the reduction.
        owners: only neighbours of one owner share; without, all may, as in an all-reduce.

    Raises:
        ValueError: there are not as many owners as factors.
    """
    pairs = _with_owners(factors, owners)
    apart = [a != b for (_, a), (_, b) in itertools.pairwise(pairs)]
    return _runs(merged([tensor for tensor, _ in pairs], cost, apart))


def groups_by_size(factors: Sequence[Factor], size_bytes: int, owners: Owners | None = None) -> list[list[int]]:
    """As `groups`, but as many as do not exceed `size_bytes`; a larger one is alone."""
    counts: list[int] = []
    for _, run in itertools.groupby(_with_owners(factors, owners), key=lambda pair: pair[1]):
        counts += cut([tensor for tensor, _ in run], "size", size_bytes)
    return _runs(counts)


def _with_owners(factors: Sequence[Factor], owners: Owners | None) -> list[tuple[Gradient, int | None]]:
    """What is sent of each factor, and its owner; without owners, all have the same."""
    tensors = [Gradient(ELEMENT_BYTES * factor.elements, factor.layer, factor.after_s) for factor in factors]
    return list(zip(tensors, [EVERYWHERE] * len(factors) if owners is None else owners, strict=True))


def _runs(counts: Sequence[int]) -> list[list[int]]:
    """So many indices each, in order."""
    indices = itertools.count()
    return [list(itertools.islice(indices, count)) for count in counts]


def broadcast_bytes(elements: int, workers: int) -> int:
    """What all workers together send so that all have `elements` of one of them."""
    return (workers - 1) * ELEMENT_BYTES * elements
