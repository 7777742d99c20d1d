"""What a user asks of a plan, and the plan that it comes to on a model, a network and a batch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated

from testbed.core.declaration import checked
from testbed.core.kinds import Choice, Kind, ListOf, Whole
from testbed.core.parallelism.cuts import Cuts, even_layers, even_sizes
from testbed.core.parallelism.placements import Placement
from testbed.core.parallelism.plan import INTERLEAVED, SCHEDULES, Plan, schedule_fault
from testbed.core.parameters import Count, raise_all
from testbed.worker.model.pieces import Piece

# Placements by regions: pipelines that cross them while replicas of a stage share one, and the reverse.

ACROSS, INSIDE = "across", "inside"
NAMES = (ACROSS, INSIDE)


def placed(name: str, regions: Sequence[Sequence[int]], pp: int, tp: int) -> Placement:
    """The ranks in the order of a plan's: by position, then replica, then shard.

    Args:
        name: "across": regions one after another, so that replicas of a position are next to each other. "inside":
            each pipeline in one region.
        regions: the ranks of each.

    Raises:
        ValueError: ranks that share layers, or of "inside" those of a pipeline, do not fit regions.
    """
    together = pp * tp if name == INSIDE else tp
    if any(len(ranks) % together for ranks in regions):
        found = ", ".join(str(len(ranks)) for ranks in regions)
        asked = f"pp={pp} x tp={tp}" if name == INSIDE else f"tp={tp}"
        raise ValueError(
            f"placement={name}: {together} ranks of {asked} are to lie in one region, and regions have {found};"
            " list the ranks of your own placement"
        )
    units = [ranks[first : first + together] for ranks in regions for first in range(0, len(ranks), together)]
    if name == ACROSS:
        return tuple(rank for unit in units for rank in unit)
    return tuple(rank for position in range(pp) for unit in units for rank in unit[position * tp :][:tp])


CHUNKS = 2
"""Stages a position where schedule=interleaved is given no cuts."""
Regions = Sequence[Sequence[int]]


FirstPieces = Annotated[Sequence[int], ListOf(Whole(0), "a list of the first piece of each stage", least=1)]


@dataclass(frozen=True)
class _Placement(Kind):
    """Names of placements, or lists of ranks."""

    type_text = "choice, or a list of ranks"
    values_text = ", ".join(NAMES)

    def faults(self, name: str, value: object, *, null: bool = False) -> Iterator[str]:
        if isinstance(value, str):
            yield from Choice(NAMES).faults(name, value)
        else:
            yield from _RANKS.faults(name, value)


_RANKS = ListOf(Whole(0), f"a list of ranks, or {' or '.join(NAMES)}", least=1)
PlacementRequest = Annotated[str | Sequence[int], _Placement()]


@checked
@dataclass(frozen=True, kw_only=True)
class PipelineRequest:
    """Pipeline that a user asks for.

    Raises:
        ValueError: a parameter is of another kind or out of its range; all of them, one a line.
    """

    pp: Count
    dp: Count | None
    """null: as many replicas as the ranks make."""
    tp: Count
    micro_batch: Count | None
    """null: the batch of one rank."""
    cuts: FirstPieces | None
    """null: even ones."""
    placement: PlacementRequest
    schedule: Annotated[str, Choice(SCHEDULES)]

    def plan(self, pieces: Sequence[Piece], regions: Regions, batch_size: int) -> Plan:
        """
        Args:
            regions: the ranks of each.
            batch_size: of one rank.

        Raises:
            ValueError: they cannot be combined; all that is wrong, one a line.
        """
        ranks = sum(map(len, regions))
        dp = self.dp or max(1, ranks // (self.pp * self.tp))
        faults = [self._ranks_fault(ranks, dp), *self._shards_faults(pieces)]
        cuts: Cuts = (0,)
        placement = tuple(range(self.pp * dp * self.tp))
        try:
            cuts = self._cuts(pieces)
        except ValueError as error:
            faults.append(str(error))
        try:
            if faults[0] is None:
                placement = self._placement(regions)
        except ValueError as error:
            faults.append(str(error))
        raise_all(*faults)
        made = Plan(
            pp=self.pp,
            dp=dp,
            tp=self.tp,
            micro_batch=self.micro_batch or batch_size,
            cuts=cuts,
            placement=placement,
            schedule=self.schedule,
        )
        raise_all(None if cuts[-1] < len(pieces) else _cuts_fault(cuts, pieces))
        return made

    def batch_faults(self, batch_size: int, ranks: int) -> Iterator[str]:
        """Of so many samples of each of so many ranks, where these make whole pipelines."""
        dp = self.dp or ranks // (self.pp * self.tp)
        if not dp or self.pp * dp * self.tp != ranks:
            return
        samples, micro_batch = batch_size * ranks // dp, self.micro_batch or batch_size
        if samples % micro_batch:
            yield (
                f"micro_batch={micro_batch}: must divide the {samples} samples of a replica, which are"
                f" batch_size={batch_size} of each of its {ranks // dp} ranks"
            )
        elif fault := schedule_fault(self.schedule, self.pp, samples // micro_batch):
            yield f"schedule={fault}"

    def _ranks_fault(self, ranks: int, dp: int) -> str | None:
        if self.pp * dp * self.tp == ranks:
            return None
        if self.dp is None:
            return f"pp={self.pp} x tp={self.tp}: a replica of {self.pp * self.tp} ranks does not divide {ranks} ranks"
        return f"pp={self.pp} x dp={dp} x tp={self.tp}: {self.pp * dp * self.tp} ranks, but there are {ranks}"

    def _shards_faults(self, pieces: Sequence[Piece]) -> Iterator[str]:
        if self.tp == 1:
            return
        if not any(piece.shared for piece in pieces):
            yield f"tp={self.tp}: no piece of this model can be shared out; use tp=1"
        numbers = {(what, number) for piece in pieces for what, number in piece.divisible.items()}
        for what, number in sorted(numbers):
            if number % self.tp:
                yield f"tp={self.tp}: does not divide the {number} {what} of a block"

    def _cuts(self, pieces: Sequence[Piece]) -> Cuts:
        if self.cuts is not None:
            return tuple(self.cuts)
        stages = self.pp * CHUNKS if self.schedule == INTERLEAVED else self.pp
        if stages > len(pieces):
            raise ValueError(f"pp={self.pp}: {stages} stages, and the model has {len(pieces)} pieces; use fewer")
        blocks = [piece.is_block for piece in pieces]
        if any(blocks):
            return even_layers(blocks, stages)
        return even_sizes([sum(p.numel() for p in piece.module.parameters()) for piece in pieces], stages)

    def _placement(self, regions: Regions) -> tuple[int, ...]:
        if isinstance(self.placement, str):
            return placed(self.placement, regions, self.pp, self.tp)
        return tuple(self.placement)


def _cuts_fault(cuts: Cuts, pieces: Sequence[Piece]) -> str:
    names = ", ".join(f"{number} {piece.name}" for number, piece in enumerate(pieces))
    return f"cuts={list(cuts)}: the last stage begins at {cuts[-1]}, and there are pieces {names}"
