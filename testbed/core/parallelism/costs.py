"""What a step takes by a plan: AMP's model as published, and one that knows latency, shared links and both directions.

B micro-batches, T_i the forward and backward of one on stage i, c_j one message over the boundary after stage j.

Published: Li et al., "AMP", NeurIPS 2022 (arXiv:2210.07297), section 3.2: a pipeline takes (B-1) max T_i + sum T_i +
sum c_j, gradients a flat ring over its slowest link. Its c_j is of the forward message alone, is paid once though every
micro-batch sends, has no latency, and is the mean of replicas though the slowest counts; no schedule is told from
another; links are never shared; memory is not looked at; gradients follow the pipeline, without overlap.

Corrected: the schedule is followed action by action (`testbed.core.parallelism.schedules`), so that a position of 1F1B
waits where the micro-batches that it may have in flight are all under way. Messages take their latency and queue for
their link, both ways; the slowest replica counts. A position sums its gradients when its own last backward is done, by
a flat ring or by region, and begins its next step then.

Published, a micro-batch takes as many times as long as one sample as it has samples; corrected, a layer has a part that
does not grow (`LayerProfile.call_s`), and forward is the part of it that was measured (`LayerProfile.forward_share`);
where none was, and in the published model, backward takes twice as long as forward. What ranks of one region send to
each other divides no rate, in the corrected model either.
"""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from testbed.core.costs.collective import chain_chunks
from testbed.core.parallelism.memory import memory_bytes
from testbed.core.parallelism.plan import INTERLEAVED, Plan
from testbed.core.parallelism.problem import RING, STEP_OF_FORWARD, LinkMatrix, Problem
from testbed.core.parallelism.schedules import Durations, least_s, period_s


@dataclass(frozen=True)
class Channel:
    """A message's start, and the rate left to it by others that share its link."""

    alpha_s: float
    rate_bit_s: float

    def seconds(self, size_bytes: float) -> float:
        return self.alpha_s + 8 * size_bytes / self.rate_bit_s


Boundary = frozenset[Channel]
"""Of all replicas and shards, from one stage to the next: the slowest counts."""


@dataclass(frozen=True, kw_only=True)
class Cost:
    """Predicted, of one step."""

    pipe_s: float
    """Time of the busiest position, if it never waited."""
    bubble_s: float
    """Time for which it waits in the schedule's order, if messages took none; AMP's: filling and draining."""
    link_s: float
    """Time that activations and their gradients add."""
    dp_s: float
    """Time that summing gradients adds."""
    memory_bytes: tuple[int, ...]
    """Of a rank of each position."""

    @property
    def total_s(self) -> float:
        return self.pipe_s + self.bubble_s + self.link_s + self.dp_s


def corrected(plan: Plan, problem: Problem) -> Cost:
    """Return what a step takes that follows another one, and its parts.

    Raises:
        ValueError: the plan does not fit the problem; see `Plan.check`.
    """
    loads, count = _loads_s(plan, problem, stage_times_s), plan.micro_batches(problem.global_batch)
    durations, nothing = durations_of(plan, problem), [0.0] * plan.pp
    computing_s, pipeline_s = (period_s(plan, count, each, nothing) for each in (durations.alone(), durations))
    return Cost(
        pipe_s=count * max(loads),
        bubble_s=computing_s - count * max(loads),
        link_s=pipeline_s - computing_s,
        dp_s=corrected_total_s(plan, problem) - pipeline_s,
        memory_bytes=memory_bytes(plan, problem),
    )


def corrected_total_s(plan: Plan, problem: Problem) -> float:
    """Return what `corrected` comes to, of a plan that fits the problem; faster than that."""
    count, after_s = plan.micro_batches(problem.global_batch), position_gradients_s(plan, problem)
    return period_s(plan, count, durations_of(plan, problem), after_s)


def least_total_s(plan: Plan, problem: Problem) -> float:
    """Return what `corrected` is never below, of a plan that fits the problem; much faster than that."""
    count, times = plan.micro_batches(problem.global_batch), stage_times_s(plan, problem)
    longest_s = max(sum(times[position :: plan.pp]) for position in range(plan.pp))
    return least_s(plan, count, whole_s=sum(times), longest_s=longest_s, sent_s=sum(boundary_times_s(plan, problem)))


def durations_of(plan: Plan, problem: Problem) -> Durations:
    """Return what one micro-batch takes on each stage, and over each boundary of the slowest replica or shard."""
    layer_s, sizes = layer_times_s(problem, plan.tp, plan.micro_batch), _boundary_bytes(plan, problem)
    times, shares = _of_stages(plan, layer_s), [layer.forward_share for layer in problem.layers]
    forward_s = _of_stages(plan, [share * time for share, time in zip(shares, layer_s, strict=True)])
    each = zip(boundaries(plan, problem.links), sizes, strict=True)
    slowest = [(max(boundary, key=lambda channel: channel.seconds(size)), size) for boundary, size in each]
    return Durations(
        forward_s=forward_s,
        backward_s=[time - forward for time, forward in zip(times, forward_s, strict=True)],
        sent_s=[8 * size / channel.rate_bit_s for channel, size in slowest],
        latency_s=[channel.alpha_s for channel, _ in slowest],
    )


def published(plan: Plan, problem: Problem, *, last_link_only: bool = False) -> Cost:
    """
    Args:
        last_link_only: as in the authors' released code, where the slowest link of a ring is its last one, whatever
            the others are: the comparison stands outside of the loop.

    Raises:
        ValueError: as `corrected`; or the plan is interleaved, of which the paper says nothing.
    """
    if plan.schedule == INTERLEAVED:
        raise ValueError("schedule=interleaved: AMP's published model has none; use gpipe or 1f1b")
    loads, count = _loads_s(plan, problem, published_stage_times_s), plan.micro_batches(problem.global_batch)
    rates = published_boundaries(plan, problem.links)
    sizes = _boundary_bytes(plan, problem)
    sent_s = [sum(8 * size / rate for rate in each) / plan.dp for each, size in zip(rates, sizes, strict=True)]
    return Cost(
        pipe_s=count * max(loads),
        bubble_s=sum(loads) - max(loads),
        link_s=sum(sent_s),
        dp_s=_published_gradients_s(plan, problem, last_link_only),
        memory_bytes=memory_bytes(plan, problem),
    )


def stage_times_s(plan: Plan, problem: Problem) -> list[float]:
    """Forward and backward of one micro-batch on each stage."""
    return _of_stages(plan, layer_times_s(problem, plan.tp, plan.micro_batch))


def published_stage_times_s(plan: Plan, problem: Problem) -> list[float]:
    """Return the same of a model that takes a sample's time for each sample."""
    return _of_stages(plan, published_layer_times_s(problem, plan.tp, plan.micro_batch))


def layer_times_s(problem: Problem, tp: int, micro_batch: int) -> list[float]:
    """Forward and backward of one micro-batch, of each layer."""
    return [STEP_OF_FORWARD * layer.samples_s(tp, micro_batch) for layer in problem.layers]


def published_layer_times_s(problem: Problem, tp: int, micro_batch: int) -> list[float]:
    return [STEP_OF_FORWARD * micro_batch * layer.samples_s(tp, 1) for layer in problem.layers]


def boundary_times_s(plan: Plan, problem: Problem) -> list[float]:
    """One message, one way, over each boundary, in the corrected model."""
    of = durations_of(plan, problem)
    return [sent_s + latency_s for sent_s, latency_s in zip(of.sent_s, of.latency_s, strict=True)]


def boundaries(plan: Plan, links: LinkMatrix) -> list[Boundary]:
    """Of the corrected model, in order of stages. All messages over one link between two regions divide its rate; what
    goes forward over a boundary comes back the other way, so each boundary counts once in both."""
    pairs = [
        [(plan.rank(a, d, t), plan.rank(b, d, t)) for d in range(plan.dp) for t in range(plan.tp)]
        for a, b in itertools.pairwise(stage % plan.pp for stage in range(plan.stages))
    ]
    shared = Counter(_both_ways(links, *pair) for each in pairs for pair in each)

    def channel(i: int, j: int) -> Channel:
        flows = shared[_both_ways(links, i, j)] if links.shared(i, j) else 1
        return Channel(links.alpha_s[i][j], links.rate_bit_s[i][j] / flows)

    return [frozenset(channel(*pair) for pair in each) for each in pairs]


def published_boundaries(plan: Plan, links: LinkMatrix) -> list[tuple[float, ...]]:
    """The rate between two stages, of each replica: the least of its shards."""
    return [
        tuple(
            min(links.rate_bit_s[plan.rank(p, d, t)][plan.rank(p + 1, d, t)] for t in range(plan.tp))
            for d in range(plan.dp)
        )
        for p in range(plan.pp - 1)
    ]


def position_gradients_s(plan: Plan, problem: Problem) -> list[float]:
    """Return how long each position takes to sum its gradients, all positions at the same time."""
    if plan.dp == 1:
        return [0.0] * plan.pp
    links, sizes = problem.links, _gradient_bytes(plan, problem)
    groups = list(zip(plan.data_groups, sizes, strict=True))
    rings = [(_leaders(group, links, problem.all_reduce), size) for group, size in groups]
    across = ring_times_s(rings, links)
    inside = [2 * _chains_s(group, size, links, problem.all_reduce) for group, size in groups]
    summed = [a + b for a, b in zip(across, inside, strict=True)]
    return [max(summed[first : first + plan.tp]) for first in range(0, len(summed), plan.tp)]


def ring_times_s(groups: Sequence[tuple[Sequence[int], float]], links: LinkMatrix) -> list[float]:
    """Of a ring all-reduce of each group, all at the same time.

    Those that share a link get equal parts of its rate until they are done: one of S bytes beside others waits for
    min(S, theirs).

    Args:
        groups: the ranks in order, and the bytes of the tensor.
    """
    edges = [list(zip(ranks, [*ranks[1:], ranks[0]], strict=True)) if len(ranks) > 1 else [] for ranks, _ in groups]
    sent = [2 * (len(ranks) - 1) / len(ranks) * size for ranks, size in groups]
    together = defaultdict[tuple[str, str], list[float]](list)
    for ring, size in zip(edges, sent, strict=True):
        for i, j in ring:
            if link := links.shared(i, j):
                together[link].append(size)

    def edge_s(i: int, j: int, rounds: int, size: float) -> float:
        link = links.shared(i, j)
        load = sum(min(size, other) for other in together[link]) if link else size
        return rounds * links.alpha_s[i][j] + 8 * load / links.rate_bit_s[i][j]

    return [
        max((edge_s(i, j, 2 * (len(ring) - 1), size) for i, j in ring), default=0.0)
        for ring, size in zip(edges, sent, strict=True)
    ]


def _loads_s(plan: Plan, problem: Problem, stage_times: Callable[[Plan, Problem], list[float]]) -> list[float]:
    """Of each position, of one micro-batch."""
    plan.check(world_size=problem.world_size, layers=len(problem.layers), global_batch=problem.global_batch)
    if plan.tp not in problem.tensor_degrees:
        raise ValueError(f"tp={plan.tp}: not profiled; layers have been with {problem.tensor_degrees}")
    times = stage_times(plan, problem)
    return [sum(times[position :: plan.pp]) for position in range(plan.pp)]


def _boundary_bytes(plan: Plan, problem: Problem) -> list[float]:
    return [float(plan.micro_batch * problem.layers[cut - 1].activation_bytes) for cut in plan.cuts[1:]]


def _gradient_bytes(plan: Plan, problem: Problem) -> list[float]:
    """Of each data group, in their order."""
    stages = [plan.layers_of_stage(stage, len(problem.layers)) for stage in range(plan.stages)]
    sizes = [sum(problem.layers[layer].parameter_bytes for layer in stage) / plan.tp for stage in stages]
    return [sum(sizes[position :: plan.pp]) for position in range(plan.pp) for _ in range(plan.tp)]


def _of_stages(plan: Plan, times_s: Sequence[float]) -> list[float]:
    return [sum(times_s[layer] for layer in plan.layers_of_stage(stage, len(times_s))) for stage in range(plan.stages)]


def _both_ways(links: LinkMatrix, i: int, j: int) -> tuple[str, ...]:
    return tuple(sorted((links.regions[i], links.regions[j])))


def _by_region(group: Sequence[int], links: LinkMatrix) -> list[list[int]]:
    found: dict[str, list[int]] = {}
    for rank in group:
        found.setdefault(links.regions[rank], []).append(rank)
    return list(found.values())


def _leaders(group: Sequence[int], links: LinkMatrix, all_reduce: str) -> list[int]:
    """Whom the ring goes through: by region its first, where there are several regions."""
    regions = _by_region(group, links)
    return list(group) if all_reduce == RING or len(regions) == 1 else [ranks[0] for ranks in regions]


def _chains_s(group: Sequence[int], size_bytes: float, links: LinkMatrix, all_reduce: str) -> float:
    """Of a sum along each region's ranks to its leader, in chunks; of its way back likewise."""
    regions = _by_region(group, links)
    if all_reduce == RING or len(regions) == 1:
        return 0.0

    def chain_s(ranks: list[int]) -> float:
        if len(ranks) == 1:
            return 0.0
        chunks = chain_chunks(size_bytes, len(ranks))
        hop_s = max(links.message_s(b, a, size_bytes / chunks) for a, b in itertools.pairwise(ranks))
        return (len(ranks) - 2 + chunks) * hop_s

    return max(map(chain_s, regions))


def _published_gradients_s(plan: Plan, problem: Problem, last_link_only: bool) -> float:
    """Of the slowest group: 2 (dp-1) / dp of its bytes over the slowest link of its ring."""
    if plan.dp == 1:
        return 0.0
    slowest = 0.0
    for group, size in zip(plan.data_groups, _gradient_bytes(plan, problem), strict=True):
        ring = zip(group, [*group[1:], group[0]], strict=True)
        rates = [problem.links.rate_bit_s[i][j] for i, j in ring]
        rate = rates[-1] if last_link_only else min(rates)
        slowest = max(slowest, 2 * (plan.dp - 1) / plan.dp * 8 * size / rate)
    return slowest
