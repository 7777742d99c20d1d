"""Placements by regions: pipelines that cross them while replicas of a stage share one, and the reverse.

Which of the two is right follows from what is larger, gradients of a stage or activations of a step: a boundary across
regions carries the latter, a ring of replicas across regions the former.
"""

from __future__ import annotations

from collections.abc import Sequence

from testbed.core.parallel.placements import Placement

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
