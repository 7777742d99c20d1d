"""Events of strategy=gossip."""

from __future__ import annotations

from dataclasses import dataclass

from testbed.core.record.events.base import Count, Number, StepEvent, Text


@dataclass(frozen=True, kw_only=True)
class Mixing(StepEvent, name="mixing"):
    """Graph on which replicas are mixed, from rank 0 after the first step."""

    graph: Text
    """Name of the graph."""
    edges: Count
    """Number of edges."""
    wan_edges: Count
    """Edges that join two regions."""
    most_neighbours: Count
    """Most neighbours of any rank."""
    spectral_gap: Number
    """1 minus the second largest absolute eigenvalue of the mixing matrix."""
    consensus_step_size: Number
    """Share of the way to its neighbours' mean that a rank goes in an exchange."""


@dataclass(frozen=True, kw_only=True)
class ConsensusDistance(StepEvent, name="consensus"):
    """Distance of a rank's parameters x from the mean of all, at the end and before all took the mean."""

    distance: Number
    """Norm of x - mean, divided by that of the mean."""
