"""PipeTransformer's plan as frozen layers grow: how many are frozen, how long a pipeline is, where it is cut.

He, Li, Soltanolkotabi and Avestimehr, "PipeTransformer: Automated Elastic Pipelining for Distributed Training of
Transformers", ICML 2021 (arXiv:2102.03161), sections 3.1 and 3.2. Of the two rules for the frozen part's memory this is
the released code's, on which the published speed-ups rest: it counts for nothing, unlike in the paper's pseudo-code,
where it is a sixth of its size on the first stage. That one is `frozen_weight`.

Frozen is a prefix of layers, given by its length.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from testbed.core.parameters import number, raise_all, whole

MICRO_BATCHES_PER_STAGE: Mapping[int, int] = {8: 2, 4: 4, 2: 8, 1: 4}
"""By the length of the pipeline; profiled once by the authors, on ViT-B/16 and eight GPUs."""
_ROUNDING = 1e-9


def scheduled_frozen(layers: int, alpha: float, epoch: int) -> int:
    """Frozen after so many epochs by the schedule alone, ceil(L (1 - (1 - alpha)^T)): the budget that a step may use of
    what is active, used up. All published runs use it."""
    raise_all(whole("layers", layers, 1), _alpha_fault(alpha), whole("epoch", epoch, 0))
    return _ceil(layers * (1 - (1 - alpha) ** epoch))


def next_frozen(frozen: int, alpha: float, gradient_norms: Sequence[float]) -> int:
    """Frozen after one more epoch by gradients: up to the active layer with the smallest norm, of equal ones the first,
    but never more than ceil(alpha (L - f)) more.

    f_T = min(f_{T-1} + alpha (L - f_{T-1}), argmin of the norms of layers from f_{T-1} on)

    Args:
        gradient_norms: of all L layers, over the epoch; those of frozen layers are not looked at.

    Raises:
        ValueError: a number is out of its range, as a norm that is not finite; all of them, one a line.
    """
    layers = len(gradient_norms)
    raise_all(whole("frozen", frozen, 0, layers), _alpha_fault(alpha))
    active = gradient_norms[frozen:]
    raise_all(*(number(f"gradient_norms[{i}]", norm, least=0, below=math.inf) for i, norm in enumerate(active, frozen)))
    if not active:
        return frozen
    budget = frozen + _ceil(alpha * (layers - frozen))
    return min(budget, frozen + active.index(min(active)))


@dataclass(frozen=True)
class Pipeline:
    """How active layers are spread."""

    length: int
    """Stages (K)."""
    cuts: tuple[int, ...]
    """The first sub-layer of each stage, of all; frozen ones are of the first stage, which begins at 0."""
    largest: float
    """What the largest stage weighs."""
    micro_batches: int


def balanced(sizes: Sequence[float], stages: int) -> list[int]:
    """How many sub-layers each stage takes: greedily, while it stays below the mean of what remains for it and later
    stages plus the variance of the sizes of that, over as many stages. The last takes the rest.

    A stage takes one at least, and leaves one for each that follows, which the paper does not say.

    A variance is of another unit than a mean: the rule depends on the unit. Of parameters in millions it makes the
    published plans; of parameters one by one the first stage takes nearly all.

    Args:
        sizes: millions of parameters of sub-layers (attention, MLP), so that no residual connection is cut.

    Raises:
        ValueError: there are fewer sub-layers than stages.
    """
    raise_all(whole("stages", stages, 1))
    raise_all(None if len(sizes) >= stages else f"stages={stages}: there are {len(sizes)} sub-layers; ask for as many")
    counts: list[int] = []
    for stage in range(stages - 1):
        rest = sizes[sum(counts) :]
        later = stages - stage - 1
        mean = sum(rest) / len(rest)
        limit = sum(rest) / (later + 1) + sum((size - mean) ** 2 for size in rest) / len(rest) / (later + 1)
        loads = itertools.accumulate(rest[: len(rest) - later])
        counts.append(max(1, sum(load < limit for load in loads)))
    return [*counts, len(sizes) - sum(counts)]


def pipeline_for(
    sizes: Sequence[float],
    frozen: int,
    length: int,
    largest_at_start: float,
    *,
    frozen_weight: float = 0.0,
    micro_batches_per_stage: Mapping[int, int] = MICRO_BATCHES_PER_STAGE,
) -> Pipeline:
    """Halved as often as no stage gets larger than the largest one was at the start, with nothing frozen; and until
    there are as many active sub-layers as stages, which the paper does not say.

    Args:
        sizes: millions of parameters of all sub-layers; see `balanced`.
        frozen: sub-layers, not layers.
        length: of the pipeline so far.
        largest_at_start: `largest` of the pipeline that began (M0).
        frozen_weight: of the frozen part's size, in the first stage.

    Raises:
        ValueError: a number is out of its range, or fewer sub-layers are active than there would be stages however
            short the pipeline gets.
    """
    raise_all(
        whole("frozen", frozen, 0, len(sizes)),
        whole("length", length, 1),
        number("largest_at_start", largest_at_start, above=0, below=math.inf),
        number("frozen_weight", frozen_weight, least=0, most=1),
    )
    pipeline, halves = None, [length >> times for times in range(length.bit_length()) if length % (1 << times) == 0]
    for each in halves:
        shorter = _spread(sizes, frozen, each, frozen_weight, micro_batches_per_stage)
        if pipeline is not None and shorter is not None and shorter.largest > largest_at_start:
            break
        pipeline = shorter or pipeline
    if pipeline is None:
        raise ValueError(f"length={length}: {len(sizes) - frozen} sub-layers are active; freeze fewer, or halve it")
    return pipeline


def initial_pipeline(
    sizes: Sequence[float],
    length: int,
    *,
    micro_batches_per_stage: Mapping[int, int] = MICRO_BATCHES_PER_STAGE,
) -> Pipeline:
    """With nothing frozen; its `largest` is M0.

    Raises:
        ValueError: there are fewer sub-layers than stages.
    """
    raise_all(whole("length", length, 1))
    raise_all(None if length <= len(sizes) else f"length={length}: there are {len(sizes)} sub-layers; ask for as many")
    pipeline = _spread(sizes, 0, length, 0.0, micro_batches_per_stage)
    assert pipeline is not None  # as was just seen
    return pipeline


def _spread(
    sizes: Sequence[float], frozen: int, length: int, frozen_weight: float, per_stage: Mapping[int, int]
) -> Pipeline | None:
    """None: there are not as many active sub-layers. All frozen, one stage holds them."""
    active = sizes[frozen:]
    if len(active) < length and not (length == 1 and not active):
        return None
    counts = balanced(active, length) if active else [0]
    ends = list(itertools.accumulate(counts))
    loads = [sum(active[end - count : end]) for count, end in zip(counts, ends, strict=True)]
    loads[0] += frozen_weight * sum(sizes[:frozen])
    cuts = (0, *(frozen + end for end in ends[:-1]))
    # a length that nobody has profiled gets what GPipe's authors advise: four a stage
    return Pipeline(length, cuts, max(loads), length * per_stage.get(length, 4))


def _alpha_fault(alpha: float) -> str | None:
    return number("alpha", alpha, above=0, below=1)


def _ceil(value: float) -> int:
    """Of what would be whole but for rounding, that."""
    return math.ceil(value - _ROUNDING)
