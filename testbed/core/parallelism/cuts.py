"""Where to cut a model into stages: optimal for a closed form of the corrected model, as AMP published it, and evenly.

AMP: Li et al., NeurIPS 2022 (arXiv:2210.07297), section 3.3. Its dynamic programming goes through the layers used, the
stages, and the longest stage so far. The one here keeps for each number of layers and stages all pairs of (longest, sum
of messages) of which none is worse in both, so that a slow link can be what holds up every micro-batch.

In all: layers are numbered from 0, cuts are the first layer of each stage, and messages[j][k] is what one message over
the boundary after stage j takes, one way, if the stage after it begins at layer k.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from functools import cache

from testbed.core.parallelism.costs import Boundary
from testbed.core.parameters import raise_all, whole

Cuts = tuple[int, ...]
Messages = Sequence[Sequence[float]]
Fits = Callable[[int, int, int], bool]
"""Whether a stage has memory for the layers from one to before another."""
_Point = tuple[float, float, Cuts]
"""The longest stage or exchange, the sum of messages one way, and the cuts."""


def best_cuts(
    times_s: Sequence[float], messages: Messages, micro_batches: int, fits: Fits | None = None
) -> Cuts | None:
    """The cuts with which a pipeline takes least time by a closed form; of equal ones those with the shortest longest
    stage or exchange, then the earliest.

    The time, in which no schedule differs from another: (micro_batches - 1) * longest + the sum of stages + twice the
    sum of messages one way, where `longest` is the longest stage, or twice the longest message.

    Args:
        times_s: forward and backward of one micro-batch, of each layer.
        messages: of one boundary fewer than there are stages.
        fits: None: all do.

    Returns:
        None: no cuts fit.

    Raises:
        ValueError: there are more stages than layers, or no micro-batch.
    """
    layers, stages = len(times_s), len(messages) + 1
    raise_all(_stages_fault(layers, stages), whole("micro_batches", micro_batches, 1))
    upto = [0.0, *itertools.accumulate(times_s)]
    allowed = fits or (lambda stage, first, end: True)
    fronts: dict[int, list[_Point]] = {end: [(upto[end], 0.0, (0,))] for end in range(1, layers) if allowed(0, 0, end)}
    if stages == 1:
        return (0,) if allowed(0, 0, layers) else None
    for stage in range(1, stages):
        ends = [layers] if stage == stages - 1 else range(stage + 1, layers)
        fronts = {
            end: _front(
                (max(longest, upto[end] - upto[cut], 2 * sent), total + sent, (*cuts, cut))
                for cut, points in fronts.items()
                if cut < end and allowed(stage, cut, end)
                for sent in (messages[stage - 1][cut],)
                for longest, total, cuts in points
            )
            for end in ends
        }
    points = fronts.get(layers)
    if not points:
        return None
    return min(((micro_batches - 1) * longest + 2 * total, longest, cuts) for longest, total, cuts in points)[2]


def published_cuts(
    times_s: Sequence[float], messages: Messages, micro_batches: int, *, forgets_messages: bool = False
) -> Cuts:
    """Of the recursion as published, with the first i layers in j stages and a longest stage of m behind them:

        F(i, j, m) = min over k of F(k, j-1, max(x, m)) + (B-1) max(0, x - m) + message(j-1, k), x the layers k..i

    With one micro-batch the authors' code divides layers evenly, and so does this.

    Args:
        forgets_messages: as in the released code, which takes a message off again before it keeps a cost: only the last
            one weighs.

    Raises:
        ValueError: there are more stages than layers, or no micro-batch.
    """
    layers, stages = len(times_s), len(messages) + 1
    raise_all(_stages_fault(layers, stages), whole("micro_batches", micro_batches, 1))
    if micro_batches == 1:
        return even_layers([True] * layers, stages)
    upto = [0.0, *itertools.accumulate(times_s)]

    @cache
    def least(end: int, count: int, longest: float) -> tuple[float, Cuts]:
        if count == 1:
            return (micro_batches - 1) * max(0.0, upto[end] - longest), (0,)
        found = []
        for cut in range(count - 1, end):
            time, sent = upto[end] - upto[cut], messages[count - 2][cut]
            before, cuts = least(cut, count - 1, max(time, longest))
            cost = before + (micro_batches - 1) * max(0.0, time - longest) + sent
            found.append((cost, (*cuts, cut), sent))
        cost, cuts, sent = min(found)
        return (cost - sent if forgets_messages else cost), cuts

    return least(layers, stages, 0.0)[1]


def even_layers(blocks: Sequence[bool], stages: int) -> Cuts:
    """Equally many blocks a stage, the first ones more where it does not divide, as Megatron-LM has it where it does
    (Narayanan et al., SC 2021); layers before the first block are of the first stage, those after a block of its own.

    Args:
        blocks: whether each layer is a block. Without enough blocks every layer counts as one.

    Raises:
        ValueError: there are more stages than layers.
    """
    raise_all(_stages_fault(len(blocks), stages))
    places = [layer for layer, block in enumerate(blocks) if block]
    if len(places) < stages:
        places = list(range(len(blocks)))
    base, more = divmod(len(places), stages)
    firsts = [stage * base + min(stage, more) for stage in range(1, stages)]
    return 0, *(places[first] for first in firsts)


def even_sizes(sizes: Sequence[float], stages: int) -> Cuts:
    """The largest stage as small as can be, by parameters or by whatever else `sizes` are.

    Raises:
        ValueError: there are more stages than layers.
    """
    raise_all(_stages_fault(len(sizes), stages))
    found = best_cuts(sizes, [[0.0] * len(sizes)] * (stages - 1), 2)
    assert found is not None  # all fit
    return found


def messages_of(boundaries: Sequence[Boundary], sizes_bytes: Sequence[float]) -> list[list[float]]:
    """
    Args:
        sizes_bytes: what each layer passes on, of one micro-batch.
    """
    before = [0.0, *sizes_bytes[:-1]]
    return [[max(channel.seconds(size) for channel in boundary) for size in before] for boundary in boundaries]


def _front(points: Iterable[_Point]) -> list[_Point]:
    """Without those that another one is as good as in both."""
    kept: list[_Point] = []
    for point in sorted(points):
        if not kept or point[1] < kept[-1][1]:
            kept.append(point)
    return kept


def _stages_fault(layers: int, stages: int) -> str | None:
    fault = whole("stages", stages, 1)
    if fault is None and stages > layers:
        return f"stages={stages}: there are {layers} layers; ask for at most as many stages"
    return fault
