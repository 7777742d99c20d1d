"""Events of K-FAC."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from testbed.core.record.events.base import FEW, Count, Counts, Number, Record, StepEvent, Text


@dataclass(frozen=True, kw_only=True)
class OwnedFactor(Record):
    """Kronecker factor."""

    name: Text
    """Layer and side."""
    dimension: Count
    """Rows; it is square."""
    owner: Count | None
    """Rank that inverts it; null: every rank."""


@dataclass(frozen=True, kw_only=True)
class FactorPlan(StepEvent, name="plan"):
    """Ranks that invert the factors."""

    factors: Annotated[list[OwnedFactor], FEW]
    """All factors, in backward order."""
    groups: Counts
    """Factors sent together; empty: none. Numbers of neighbouring ones."""


@dataclass(frozen=True, kw_only=True)
class Damping(StepEvent, name="damping"):
    """A factor needed more damping. It could not be inverted with the requested one, in double precision either."""

    name: Text
    """Factor."""
    asked: Number
    taken: Number
    """Damping requested, and used."""
