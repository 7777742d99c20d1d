"""Events of strategy=hybrid and of its planner."""

from __future__ import annotations

from dataclasses import dataclass

from testbed.core.record.events.base import Count, Counts, Matrix, NamedNumbers, Number, StepEvent, Text, Texts


@dataclass(frozen=True, kw_only=True)
class Pipeline(StepEvent, name="pipeline"):
    """Plan that is executed."""

    pp: Count
    dp: Count
    tp: Count
    """Pipeline stages, replicas, tensor-parallel shards."""
    micro_batch: Count
    """Samples of a micro-batch."""
    micro_batches: Count
    """Micro-batches of a replica per step."""
    schedule: Text
    """Order of micro-batches."""
    cuts: Counts
    """First piece of each stage."""
    placement: Counts
    """Ranks: position 0 first, its replica 0 first."""


@dataclass(frozen=True, kw_only=True)
class LinkProbe(StepEvent, name="link_probe"):
    """Links between ranks, measured by round trips."""

    regions: Texts
    """Region of each rank."""
    alpha_s: Matrix
    """Time of a message besides bytes."""
    rate_bit_s: Matrix
    """Rate at which its bytes pass."""
    pairs: Count
    """Pairs measured."""
    sent_bytes: Count
    """Bytes sent for it."""
    took_s: Number
    """Time that it took."""


@dataclass(frozen=True, kw_only=True)
class ChosenPlan(StepEvent, name="chosen_plan"):
    """Plan that the planner chose."""

    way: Text
    """Search, as in `strategy.plan`."""
    place: Count
    """Rank among the plans found, from 1."""
    pp: Count
    dp: Count
    tp: Count
    """Pipeline stages, replicas, tensor-parallel shards."""
    micro_batch: Count
    """Samples of a micro-batch."""
    cuts: Counts
    """First piece of each stage."""
    placement: Counts
    """Ranks: position 0 first, its replica 0 first."""
    schedule: Text
    """Order of micro-batches."""
    predicted_s: Number
    """Predicted step time. By the corrected model."""
    parts_s: NamedNumbers
    """Parts of it: `pipe_s`, `bubble_s`, `link_s`, `dp_s`."""
    published_s: Number | None
    """Step time by AMP's model. Null for an unknown schedule."""
    memory_bytes: Counts
    """Memory of each position's ranks."""
    memory_faults: Texts
    """Reasons of no fit (amp)."""
