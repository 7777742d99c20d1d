"""What the search is compared with: data parallelism alone, Megatron's heuristic, DT-FM's placement, AMP as published.

All but AMP as published get the best micro-batch that the corrected model finds for them.
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable, Iterable, Iterator, Sequence

from testbed.core.parallelism.costs import (
    corrected,
    corrected_total_s,
    published,
    published_boundaries,
    published_layer_times_s,
)
from testbed.core.parallelism.cuts import Cuts, even_layers, published_cuts
from testbed.core.parallelism.memory import memory_faults
from testbed.core.parallelism.placements import Placement, starts
from testbed.core.parallelism.plan import INTERLEAVED, Plan
from testbed.core.parallelism.problem import LinkMatrix, Problem
from testbed.core.parallelism.search import Candidate, Options, Ranking, Rejected, Shape, shapes

_Group = tuple[int, ...]
Groups = tuple[_Group, ...]
"""Of ranks, one for each position of a pipeline."""
MAX_ORDERED_GROUPS = 8
"""Groups of which DT-FM's best order is found; of more, one that goes to the nearest next."""
_Matched = dict[tuple[_Group, _Group], float]


def data_parallel(problem: Problem, options: Options) -> Candidate | Rejected:
    """All ranks replicas of the whole model, in their order."""
    found = [shape for shape in _shapes(problem, options) if shape.dp == problem.world_size]
    return _best(problem, "data parallelism alone", ((shape, (0,), _in_order(shape)) for shape in found))


def megatron(problem: Problem, options: Options) -> Candidate | Rejected:
    """Tensor parallelism as wide as regions allow, a pipeline across regions, replicas of what is left, blocks evenly
    divided, as Narayanan et al. advise for machines (SC 2021, arXiv:2104.04473, section 3)."""
    regions = problem.links.members
    found = _shapes(problem, options)
    widest = max((shape.tp for shape in found), default=1)
    across = [shape for shape in found if shape.tp == widest and shape.pp == len(regions)]

    def placed() -> Iterator[tuple[Shape, Cuts, Placement]]:
        for shape in across:
            yield shape, _even(problem, shape), starts(problem.links, shape.pp, shape.dp, shape.tp)[0]

    return _best(problem, f"tp={widest} pp={len(regions)}, a position for each region", placed())


def dt_fm(problem: Problem, options: Options) -> Candidate | Rejected:
    """Even stages where the slowest messages cost least: the placement alone is optimised, no tensor parallelism.

    Yuan et al., "Decentralized Training of Foundation Models in Heterogeneous Environments", NeurIPS 2022
    (arXiv:2206.01288), section 3: first who are replicas of each other, by the slowest group, then the order of groups,
    by the sum of the slowest of the messages between two that follow each other. Differs: groups are all tried up to
    `Options.exhaustive_ranks` ranks, and beyond that improved by seeded swaps, where the authors have an evolutionary
    search.
    """

    def placed() -> Iterator[tuple[Shape, Cuts, Placement]]:
        for shape in _shapes(problem, options):
            if shape.tp == 1:
                yield shape, _even(problem, shape), _dt_fm_placement(problem, shape, options)

    return _best(problem, "tp=1, placed as by DT-FM", placed())


def amp_published(problem: Problem, options: Options, *, as_released: bool = False) -> Ranking:
    """Plans in the order of AMP's own model, with its cuts and ranks in their order, whatever memory they need.

    It tells no schedule from another: of plans that it says take the same time the corrected model's faster one is
    first.

    Args:
        as_released: with the faults of the authors' code too, which their paper does not have: see `published` and
            `published_cuts`.
    """
    candidates, rejected = list[Candidate](), list[Rejected]()
    for shape in shapes(problem, options):
        if isinstance(shape, Rejected):
            rejected.append(shape)
        elif shape.schedule == INTERLEAVED:
            rejected.append(Rejected(str(shape), ("AMP's published model has no interleaved schedule",)))
        else:
            plan = _published_plan(problem, shape, as_released)
            candidates.append(Candidate(plan, published(plan, problem, last_link_only=as_released)))
    candidates.sort(key=lambda one: (one.cost.total_s, corrected_total_s(one.plan, problem)))
    return Ranking(tuple(candidates), tuple(rejected))


def dt_fm_cost_s(groups: Groups, links: LinkMatrix, gradient_bytes: float, message_bytes: float) -> float:
    """DT-FM's own: its slowest group's gradients, and its pipeline's slowest messages, of the best order of groups."""
    slowest_s = max(_group_s(group, links, gradient_bytes) for group in groups)
    return slowest_s + _order(groups, links, message_bytes)[0]


def _published_plan(problem: Problem, shape: Shape, as_released: bool) -> Plan:
    even = shape.plan(even_layers([True] * len(problem.layers), shape.pp), _in_order(shape))
    sizes = [0, *(shape.micro_batch * layer.activation_bytes for layer in problem.layers[:-1])]
    messages = [
        [sum(8 * size / rate for rate in rates) / shape.dp for size in sizes]
        for rates in published_boundaries(even, problem.links)
    ]
    count = even.micro_batches(problem.global_batch)
    times = published_layer_times_s(problem, shape.tp, shape.micro_batch)
    cuts = published_cuts(times, messages, count, forgets_messages=as_released)
    return shape.plan(cuts, even.placement)


def _dt_fm_placement(problem: Problem, shape: Shape, options: Options) -> Placement:
    links, stages = problem.links, shape.pp
    gradients = sum(layer.parameter_bytes for layer in problem.layers) / stages
    message = shape.micro_batch * max(layer.activation_bytes for layer in problem.layers)

    def cost_s(groups: Groups) -> tuple[float, float]:
        # a swap seldom helps the slowest group at once: of equal ones the one whose groups are fast together
        together_s = sum(links.message_s(i, j, message) for group in groups for i in group for j in group if i != j)
        return dt_fm_cost_s(groups, links, gradients, message), together_s

    if problem.world_size <= options.exhaustive_ranks:
        groups = min(_partitions(tuple(range(problem.world_size)), shape.dp), key=cost_s)
    else:
        groups = _improved(starts(links, stages, shape.dp, 1), shape.dp, cost_s, options)
    return tuple(rank for group in _order(groups, links, message)[1] for rank in group)


def _group_s(group: _Group, links: LinkMatrix, size_bytes: float) -> float:
    """Of its slowest rank: to and from each of the others its part, one after another."""
    part = size_bytes / len(group)
    return max(sum(2 * links.message_s(i, j, part) for j in group if j != i) for i in group)


def _order(groups: Groups, links: LinkMatrix, size_bytes: float) -> tuple[float, Groups]:
    """The open path through all groups whose matchings cost least, and its groups with their ranks matched."""
    matched = {(a, b): _matching_s(a, b, links, size_bytes) for a, b in itertools.permutations(groups, 2)}
    cost, path = (_shortest_path if len(groups) <= MAX_ORDERED_GROUPS else _near_path)(groups, matched)
    placed = [path[0]]
    for group in path[1:]:
        placed.append(_match(placed[-1], group, links, size_bytes))
    return cost, tuple(placed)


def _shortest_path(groups: Groups, cost_s: _Matched) -> tuple[float, Groups]:
    """By dynamic programming over the groups passed and the last one (Held and Karp, 1962)."""
    paths: dict[tuple[frozenset[_Group], _Group], tuple[float, Groups]]
    paths = {(frozenset([group]), group): (0.0, (group,)) for group in groups}
    for _ in range(len(groups) - 1):
        longer: dict[tuple[frozenset[_Group], _Group], tuple[float, Groups]] = {}
        for (passed, last), (cost, path) in paths.items():
            for group in groups:
                if group not in passed:
                    key, found = (passed | {group}, group), (cost + cost_s[last, group], (*path, group))
                    longer[key] = min(longer.get(key, found), found)
        paths = longer
    return min(paths.values())


def _near_path(groups: Groups, cost_s: _Matched) -> tuple[float, Groups]:
    """From each group on always to the nearest that is left; of these paths the best."""
    found: list[tuple[float, Groups]] = []
    for first in groups:
        cost, left = 0.0, set(groups) - {first}
        path: Groups = (first,)
        while left:
            step, nearest = min((cost_s[path[-1], group], group) for group in left)
            cost, path, left = cost + step, (*path, nearest), left - {nearest}
        found.append((cost, path))
    return min(found)


def _matching_s(a: Sequence[int], b: Sequence[int], links: LinkMatrix, size_bytes: float) -> float:
    return max(links.message_s(i, j, size_bytes) for i, j in zip(a, _match(a, b, links, size_bytes), strict=True))


def _match(a: Sequence[int], b: Sequence[int], links: LinkMatrix, size_bytes: float) -> tuple[int, ...]:
    """The ranks of `b` in the order in which those of `a` send to them, the slowest message as fast as can be."""
    times = sorted({links.message_s(i, j, size_bytes) for i in a for j in b})
    for limit in times:
        partner: dict[int, int] = {}

        def placed(i: int, seen: set[int], limit: float = limit, partner: dict[int, int] = partner) -> bool:
            for j in b:
                if j not in seen and links.message_s(i, j, size_bytes) <= limit:
                    seen.add(j)
                    if j not in partner or placed(partner[j], seen):
                        partner[j] = i
                        return True
            return False

        if all(placed(i, set()) for i in a):
            to = {i: j for j, i in partner.items()}
            return tuple(to[i] for i in a)
    raise AssertionError("with the longest as the limit everyone sends to anyone")


def _partitions(ranks: tuple[int, ...], size: int) -> Iterator[Groups]:
    """All ways of making groups of `size`, whose order does not count."""
    if not ranks:
        yield ()
        return
    for others in itertools.combinations(ranks[1:], size - 1):
        rest = tuple(rank for rank in ranks[1:] if rank not in others)
        for groups in _partitions(rest, size):
            yield ((ranks[0], *others), *groups)


def _improved(
    from_here: Iterable[Placement], size: int, cost_s: Callable[[Groups], tuple[float, float]], options: Options
) -> Groups:
    def groups_of(order: Sequence[int]) -> Groups:
        return tuple(tuple(sorted(order[first : first + size])) for first in range(0, len(order), size))

    best = min(map(groups_of, from_here), key=cost_s)
    drawn, least_s = random.Random(options.seed), cost_s(best)
    for _ in range(options.tries):
        order = [rank for group in best for rank in group]
        a, b = drawn.sample(range(len(order)), 2)
        order[a], order[b] = order[b], order[a]
        if (time_s := cost_s(groups_of(order))) < least_s:
            best, least_s = groups_of(order), time_s
    return best


def _best(problem: Problem, what: str, found: Iterable[tuple[Shape, Cuts, Placement]]) -> Candidate | Rejected:
    best, least_s, reasons = None, math.inf, list[str]()
    for shape, cuts, placement in found:
        plan = shape.plan(cuts, placement)
        if faults := memory_faults(plan, problem):
            reasons.extend(f"{shape}: {fault}" for fault in faults)
        elif (cost := corrected(plan, problem)).total_s < least_s:
            best, least_s = Candidate(plan, cost), cost.total_s
    return best or Rejected(what, tuple(reasons) or ("no such plan divides ranks, layers and batch",))


def _shapes(problem: Problem, options: Options) -> list[Shape]:
    return [shape for shape in shapes(problem, options) if isinstance(shape, Shape)]


def _even(problem: Problem, shape: Shape) -> Cuts:
    return even_layers([layer.block for layer in problem.layers], shape.pp * shape.chunks)


def _in_order(shape: Shape) -> Placement:
    return tuple(range(shape.pp * shape.dp * shape.tp))
