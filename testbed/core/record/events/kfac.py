"""Events of K-FAC."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from testbed.core.record.events.base import FEW, Count, Counts, Number, Record, StepEvent, Text


@dataclass(frozen=True, kw_only=True)
class OwnedFactor(Record):
    """One Kronecker factor."""

    name: Text
    """Layer and side of the factor."""
    dimension: Count
    """Rows of the factor, which is square."""
    owner: Count | None
    """Rank that inverts it; null: every rank does."""


@dataclass(frozen=True, kw_only=True)
class FactorPlan(StepEvent, name="plan"):
    """Ranks that invert the factors, from rank 0 after the step in which it was decided."""

    factors: Annotated[list[OwnedFactor], FEW]
    """All factors, in the order of backward."""
    groups: Counts
    """Number of neighbouring factors that are sent together; empty if factors stay on their ranks."""


@dataclass(frozen=True, kw_only=True)
class Damping(StepEvent, name="damping"):
    """A factor could not be inverted with the requested damping, in double precision either."""

    name: Text
    """Factor."""
    asked: Number
    """Requested damping."""
    taken: Number
    """Damping that was used."""
