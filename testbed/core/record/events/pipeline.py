"""Events of strategy=hybrid and of its planner."""

from __future__ import annotations

from dataclasses import dataclass

from testbed.core.record.events.base import Count, Counts, Matrix, NamedNumbers, Number, StepEvent, Text, Texts


@dataclass(frozen=True, kw_only=True)
class Pipeline(StepEvent, name="pipeline"):
    """Plan that is executed, from rank 0 after the first step."""

    pp: Count
    """Pipeline stages."""
    dp: Count
    """Replicas."""
    tp: Count
    """Tensor-parallel shards."""
    micro_batch: Count
    """Samples of a micro-batch."""
    micro_batches: Count
    """Micro-batches of a replica in a step."""
    schedule: Text
    """Order of micro-batches."""
    cuts: Counts
    """First piece of each stage."""
    placement: Counts
    """Ranks: those of position 0 first, its replica 0 first."""


@dataclass(frozen=True, kw_only=True)
class LinkProbe(StepEvent, name="link_probe"):
    """Links between ranks as measured by round trips before the first step, from rank 0 after it."""

    regions: Texts
    """Region of each rank."""
    alpha_s: Matrix
    """Emulated seconds that a message takes in addition to its bytes."""
    rate_bit_s: Matrix
    """Rate at which its bytes pass."""
    pairs: Count
    """Number of pairs that were measured."""
    sent_bytes: Count
    """Bytes that all ranks sent for it."""
    took_s: Number
    """Emulated seconds that it took."""


@dataclass(frozen=True, kw_only=True)
class ChosenPlan(StepEvent, name="chosen_plan"):
    """Plan that the planner chose, from rank 0 after the first step."""

    way: Text
    """Way of choosing it, as in `strategy.plan`."""
    place: Count
    """Rank of the plan among those found, from 1."""
    pp: Count
    """Pipeline stages."""
    dp: Count
    """Replicas."""
    tp: Count
    """Tensor-parallel shards."""
    micro_batch: Count
    """Samples of a micro-batch."""
    cuts: Counts
    """First piece of each stage."""
    placement: Counts
    """Ranks: those of position 0 first, its replica 0 first."""
    schedule: Text
    """Order of micro-batches."""
    predicted_s: Number
    """Emulated seconds of a step by the corrected model."""
    parts_s: NamedNumbers
    """Parts of `predicted_s`: `pipe_s`, `bubble_s`, `link_s`, `dp_s`."""
    published_s: Number | None
    """Emulated step time by AMP's model; null for an unknown schedule."""
    memory_bytes: Counts
    """Memory of a rank of each position."""
    memory_faults: Texts
    """Reasons why it would not fit; of amp only."""
