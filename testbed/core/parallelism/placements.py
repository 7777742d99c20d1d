"""Ways of giving ranks to the places of a plan, those left out that equal links or a ring's rotation make alike.

A placement lists ranks in the order of a plan's: by position, then replica, then shard. Tensor groups lie in a region.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

from testbed.core.parallelism.problem import RING, LinkMatrix, Problem

Placement = tuple[int, ...]
_PROBE_BYTES = 1_000_000
"""Of a message by which the nearest rank is told: large enough for rates to count as well as latency."""


def all_placements(problem: Problem, pp: int, dp: int, tp: int) -> Iterator[Placement]:
    """Of those that are alike, one; by the lowest ranks first."""
    classes = alike(problem)
    of_rank = {rank: index for index, ranks in enumerate(classes) for rank in ranks}
    regions, size = problem.links.regions, pp * dp * tp
    placed: list[int] = []
    left = [list(ranks) for ranks in classes]

    def allowed(rank: int) -> bool:
        place = len(placed)
        if place % tp and regions[rank] != regions[placed[place - place % tp]]:
            return False
        # a ring of replicas that begins elsewhere is the same one: the lowest is first
        rotated = problem.all_reduce == RING and place and place < dp * tp and place % tp == 0
        return not rotated or of_rank[rank] >= of_rank[placed[0]]

    def fill() -> Iterator[Placement]:
        if len(placed) == size:
            yield tuple(placed)
            return
        for ranks in left:
            if ranks and allowed(ranks[0]):
                placed.append(ranks.pop(0))
                yield from fill()
                ranks.insert(0, placed.pop())

    return fill()


def alike(problem: Problem) -> list[list[int]]:
    """Ranks that may change places without anything changing, together."""
    classes: list[list[int]] = []
    for rank in range(problem.world_size):
        found = next((ranks for ranks in classes if _interchangeable(problem, ranks[0], rank)), None)
        if found is None:
            classes.append([rank])
        else:
            found.append(rank)
    return classes


def starts(links: LinkMatrix, pp: int, dp: int, tp: int) -> list[Placement]:
    """Where a local search begins: regions one after another, always the nearest next, and all regions in turn.

    With pp and dp as they are, the first two put replicas of a stage next to each other and cut pipelines where it is
    far; the last does the reverse. None: tensor groups do not fit into regions.
    """
    units = [
        [members[first : first + tp] for first in range(0, len(members) - tp + 1, tp)]
        for members in links.members.values()
    ]
    if sum(map(len, units)) < pp * dp:
        return []
    in_blocks = [unit for region in units for unit in region]
    in_turn = [region[index] for index in range(max(map(len, units))) for region in units if index < len(region)]
    orders = [
        tuple(rank for unit in order for rank in unit) for order in (in_blocks, _nearest(links, in_blocks), in_turn)
    ]
    return list(dict.fromkeys(orders))


def swapped_units(placement: Placement, tp: int, drawn: random.Random) -> Placement:
    """With two tensor groups in each other's place."""
    units = [placement[first : first + tp] for first in range(0, len(placement), tp)]
    if len(units) > 1:
        a, b = drawn.sample(range(len(units)), 2)
        units[a], units[b] = units[b], units[a]
    return tuple(rank for unit in units for rank in unit)


def _nearest(links: LinkMatrix, units: list[Placement]) -> list[Placement]:
    """From the first on, always to the nearest that is left, by what a message takes there and back."""
    order, left = units[:1], units[1:]

    def away_s(unit: Placement) -> float:
        here, there = order[-1][0], unit[0]
        return links.message_s(here, there, _PROBE_BYTES) + links.message_s(there, here, _PROBE_BYTES)

    while left:
        order.append(min(left, key=away_s))
        left.remove(order[-1])
    return order


def _interchangeable(problem: Problem, i: int, j: int) -> bool:
    links, memory = problem.links, problem.memory_bytes
    if links.regions[i] != links.regions[j] or (memory is not None and memory[i] != memory[j]):
        return False
    others = [k for k in range(links.ranks) if k not in (i, j)]
    return all(
        matrix[i][j] == matrix[j][i]
        and all(matrix[i][k] == matrix[j][k] and matrix[k][i] == matrix[k][j] for k in others)
        for matrix in (links.alpha_s, links.rate_bit_s)
    )
