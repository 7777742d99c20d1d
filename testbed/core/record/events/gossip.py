"""Events of strategy=gossip."""

from __future__ import annotations

from dataclasses import dataclass

from testbed.core.record.events.base import Count, Number, StepEvent, Text


@dataclass(frozen=True, kw_only=True)
class Mixing(StepEvent, name="mixing"):
    """Graph on which replicas mix."""

    graph: Text
    """Name."""
    edges: Count
    wan_edges: Count
    """Edges, and those between regions."""
    most_neighbours: Count
    """Most neighbours of any rank."""
    spectral_gap: Number
    """1 - the mixing matrix's second largest absolute eigenvalue."""
    consensus_step_size: Number
    """Share of the way to neighbours' mean."""


@dataclass(frozen=True, kw_only=True)
class ConsensusDistance(StepEvent, name="consensus"):
    """Distance of parameters x from the mean, at the end. Before all took the mean."""

    distance: Number
    """Norm of x - mean / norm of the mean."""
