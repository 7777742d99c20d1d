"""Events of data parallelism and of transforms."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from testbed.core.record.events.base import FEW, Count, Number, Numbers, Reasons, Record, StepEvent, Text, Texts


@dataclass(frozen=True, kw_only=True)
class Tuning(StepEvent, name="tuning"):
    """`strategy.fusion=tuned` compared sizes of buckets, from rank 0."""

    what: Text
    """`trial`: buckets of this size took `step_s`. `chosen`: the best trial, used from now on. `changed`: the chosen
    size now takes `step_s`, so a new search begins."""
    size_bytes: Count
    """Size of a bucket."""
    step_s: Number
    """Median emulated seconds of a step."""
    trial: Count
    """Number of trials so far."""
    buckets: Count
    """Number of buckets at this size."""


@dataclass(frozen=True, kw_only=True)
class Factorised(Record):
    """One layer that became two factors or got an adapter."""

    layer: Text
    """Name of the layer."""
    rank: Count
    """Rank of the factors or of the adapter."""
    full_rank: Count
    """Rank that its weight may have."""
    elements: Count
    """Elements of the weight."""
    factor_elements: Count
    """Elements of both factors."""
    lost_share: Number
    """Norm of what the weight lost, over the weight's norm."""


@dataclass(frozen=True, kw_only=True)
class ModelChange(StepEvent, name="transform"):
    """A transform changed the model, from rank 0. For lora, with step 0: which layers have adapters."""

    parameters_before: Count
    """Trainable parameters before the change."""
    parameters: Count
    """Trainable parameters after it."""
    factorised: Annotated[list[Factorised], FEW]
    """Layers that changed."""
    kept: Reasons
    """Layers that did not change, and why."""


@dataclass(frozen=True, kw_only=True)
class DrawnChanges(StepEvent, name="drawn_changes"):
    """A workload that computes nothing draws what training would change of its parameters, from rank 0."""

    texture: Text
    """Workload on which it was measured what changes look like."""
    assumed: Texts
    """Codecs with value-dependent message sizes, which were not measured for this model."""


@dataclass(frozen=True, kw_only=True)
class FrozenLayers(StepEvent, name="freeze"):
    """transform=freeze froze more layers, from rank 0."""

    frozen: Count
    """Number of frozen layers."""
    parameters_before: Count
    """Trainable parameters before."""
    parameters: Count
    """Trainable parameters after."""
    epoch: Count
    layers: Count
    """Number of layers in all."""
    gradient_norms: Numbers | None
    """2-norm of each layer's gradients over the epoch; null if the policy does not use them."""


@dataclass(frozen=True, kw_only=True)
class Cache(StepEvent, name="cache"):
    """Cache of frozen layers' outputs on one rank, after each epoch in which it had one."""

    epoch: Count
    whole: Count
    """Samples of which the outputs of all frozen layers were known."""
    part: Count
    """Samples of which those of fewer layers were known."""
    none: Count
    """Samples of which nothing was known."""
    cached_samples: Count
    """Samples in the cache now."""
    size_bytes: Count
    """Size of the cache now."""
