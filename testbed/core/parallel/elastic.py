"""PipeTransformer's AutoDP without what carries it out: who runs which stage once pipelines are shorter and there are
more of them, who sends what to whom, who averages with whom, what becomes of the learning rate.

He et al., ICML 2021 (arXiv:2102.03161), section 3.3; numbers of ranks as in the authors' released code. Differs from
it: the learning rate follows the global batch, which grows with the pipelines, and gradients may be averaged inside
regions before they cross between them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from testbed.core import collective_costs
from testbed.core.parameter_faults import choice, number, raise_all, whole
from testbed.core.topology import Topology

RATE_RULES = ("none", "linear", "sqrt")


@dataclass(frozen=True)
class Arrangement:
    """Pipelines of equal length; who is in none of them waits."""

    pipelines: tuple[tuple[int, ...], ...]
    """The ranks of each, by stage."""
    cuts: tuple[int, ...]
    """The first piece of each stage, ascending from 0."""
    pieces: int

    @property
    def length(self) -> int:
        return len(self.cuts)

    @property
    def active(self) -> tuple[int, ...]:
        return tuple(sorted(rank for pipeline in self.pipelines for rank in pipeline))

    def replicas(self, stage: int) -> tuple[int, ...]:
        """Ranks that run it, and average its gradients."""
        return tuple(pipeline[stage] for pipeline in self.pipelines)

    def stage_of(self, piece: int) -> int:
        return max(stage for stage, first in enumerate(self.cuts) if first <= piece)


@dataclass(frozen=True)
class Move:
    """A piece, its parameters and what the optimizer keeps of them, that a rank has to get from another."""

    piece: int
    source: int
    target: int


def arranged(ranks: int, length_at_start: int, cuts: Sequence[int], pieces: int) -> Arrangement:
    """Each of the pipelines that began gives way to as many of its ranks, in order, as make whole ones.

    Args:
        length_at_start: stages of each of them (K0); pipeline n had the ranks from n K0 on.
        cuts: see `Arrangement`; as many as stages are left, into which K0 divides.

    Raises:
        ValueError: with a line for each number that does not divide, or cut out of order.
    """
    length = len(cuts)
    raise_all(whole("ranks", ranks, 1), whole("length_at_start", length_at_start, 1), whole("pieces", pieces, 1))
    raise_all(
        None if ranks % length_at_start == 0 else f"ranks={ranks}: are not whole pipelines of {length_at_start}",
        None
        if length and length_at_start % length == 0
        else f"cuts={list(cuts)}: {length} stages do not divide the {length_at_start} there were",
        None
        if list(cuts) == sorted({*cuts, 0}) and all(cut < pieces for cut in cuts)
        else f"cuts={list(cuts)}: must ascend from 0 and be below {pieces}",
    )
    pipelines = tuple(tuple(range(first, first + length)) for first in range(0, ranks, length))
    return Arrangement(pipelines, tuple(cuts), pieces)


def moves(before: Arrangement, after: Arrangement, topology: Topology) -> list[Move]:
    """What ranks lack after a transition, by piece and target: each from an owner in its own region if there is one, of
    several from the one that has given least, then from the first. Frozen pieces too: whoever begins a pipeline runs
    them."""
    region = {rank: node.region for rank, node in enumerate(topology.nodes)}
    given: dict[int, int] = {}
    found = []
    for piece in range(after.pieces):
        owners = before.replicas(before.stage_of(piece))
        for target in after.replicas(after.stage_of(piece)):
            if target in owners:
                continue
            source = min(owners, key=lambda rank: (region[rank] != region[target], given.get(rank, 0), rank))
            given[source] = given.get(source, 0) + 1
            found.append(Move(piece, source, target))
    return found


def averaged_wan_bytes(
    arrangement: Arrangement, stage_bytes: Sequence[float], topology: Topology, algorithm: str
) -> float:
    """What crosses between regions in one averaging of all stages' gradients, over all pairs of regions.

    Args:
        stage_bytes: of the gradients of each stage: its active part alone.
        algorithm: of an all-reduce among the ranks that run a stage (`collective_costs`); hierarchical sends as much
            however many replicas a region has, a ring more and more, up to twice what it does among two.
    """
    return sum(
        sum(
            collective_costs.wan_bytes(
                algorithm, "all_reduce", size_bytes, topology.only(list(arrangement.replicas(stage)))
            ).values()
        )
        for stage, size_bytes in enumerate(stage_bytes)
        if len(arrangement.pipelines) > 1
    )


def rescaled_rate(rate: float, replicas_before: int, replicas_after: int, rule: str = "linear") -> float:
    """Of a batch that grows with the pipelines: in proportion (Goyal et al., "Accurate, Large Minibatch SGD",
    arXiv:1706.02677), by its root, or as it was.

    Raises:
        ValueError: with a line for each parameter out of its range.
    """
    raise_all(
        number("rate", rate, above=0, below=math.inf),
        whole("replicas_before", replicas_before, 1),
        whole("replicas_after", replicas_after, 1),
        choice("rule", rule, RATE_RULES),
    )
    ratio = replicas_after / replicas_before
    return rate * {"none": 1.0, "linear": ratio, "sqrt": math.sqrt(ratio)}[rule]
