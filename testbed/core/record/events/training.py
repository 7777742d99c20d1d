"""Events of data parallelism and of transforms."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from testbed.core.record.events.base import FEW, Count, Number, Numbers, Reasons, Record, StepEvent, Text, Texts


@dataclass(frozen=True, kw_only=True)
class Tuning(StepEvent, name="tuning"):
    """`strategy.fusion=tuned` compared bucket sizes."""

    what: Text
    """`trial`; `chosen`: the best trial; `changed`: a new search begins. `trial`: buckets of this size took `step_s`.
    `changed`: the chosen size now takes `step_s`."""
    size_bytes: Count
    """Size of a bucket."""
    step_s: Number
    """Median step time."""
    trial: Count
    buckets: Count
    """Trials so far, and buckets at this size."""


@dataclass(frozen=True, kw_only=True)
class Factorised(Record):
    """Layer that became factors or got an adapter."""

    layer: Text
    """Name."""
    rank: Count
    """Rank of factors or adapter."""
    full_rank: Count
    """Rank that the weight may have."""
    elements: Count
    factor_elements: Count
    """Elements of the weight, and of both factors."""
    lost_share: Number
    """Lost norm / the weight's norm."""


@dataclass(frozen=True, kw_only=True)
class ModelChange(StepEvent, name="transform"):
    """A transform changed the model. For lora, with step 0: which layers have adapters."""

    parameters_before: Count
    parameters: Count
    """Trainable parameters before and after."""
    factorised: Annotated[list[Factorised], FEW]
    """Layers that changed."""
    kept: Reasons
    """Reasons why other layers did not change."""


@dataclass(frozen=True, kw_only=True)
class DrawnChanges(StepEvent, name="drawn_changes"):
    """A workload without training draws its changes.

    It computes nothing; what training would change of its parameters is drawn.
    """

    texture: Text
    """Workload on which changes were measured."""
    assumed: Texts
    """Codecs not measured for this model. Their messages have value-dependent sizes."""


@dataclass(frozen=True, kw_only=True)
class FrozenLayers(StepEvent, name="freeze"):
    """transform=freeze froze more layers."""

    frozen: Count
    """Frozen layers."""
    parameters_before: Count
    parameters: Count
    """Trainable parameters before and after."""
    epoch: Count
    layers: Count
    """All layers."""
    gradient_norms: Numbers | None
    """2-norm of each layer's gradients. Over the epoch; null if the policy does not use them."""


@dataclass(frozen=True, kw_only=True)
class Cache(StepEvent, name="cache"):
    """A rank's cache of frozen outputs, after an epoch."""

    epoch: Count
    whole: Count
    part: Count
    none: Count
    """Samples with all, some and no outputs known."""
    cached_samples: Count
    size_bytes: Count
    """Samples in the cache now, and its size."""
