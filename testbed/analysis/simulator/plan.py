"""What a step does, as far as time and bytes are concerned: read from a profile and a spec."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from testbed.analysis.simulator.bucketing import buckets, torch_buckets
from testbed.core.errors import InputError
from testbed.core.profile import Collective, Profile
from testbed.core.spec import RunSpec

_STRATEGIES = {"testbed.worker.strategies.ddp.DDP": "ddp", "testbed.worker.strategies.torch_ddp.TorchDDP": "torch_ddp"}


@dataclass(frozen=True)
class BucketPlan:
    elements: int
    ready_s: float
    """Of backward, until all its gradients are there."""
    collectives: tuple[Collective, ...]
    """After one another."""
    codec_s: tuple[float, ...]
    """Before the first, between, and after the last."""


@dataclass(frozen=True)
class StepPlan:
    before_s: float
    """Forward, and what belongs to no phase."""
    backward_s: float
    after_s: float
    """The optimizer."""
    buckets: tuple[BucketPlan, ...]
    algorithm: str
    """Of the collectives."""

    @property
    def compute_s(self) -> float:
        codec_s = sum(sum(bucket.codec_s) for bucket in self.buckets)
        return self.before_s + self.backward_s + self.after_s + codec_s

    def to_json(self) -> dict[str, Any]:
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> StepPlan:
        def bucket(one: Mapping[str, Any]) -> BucketPlan:
            collectives = tuple(Collective(**c) for c in one["collectives"])
            return BucketPlan(one["elements"], one["ready_s"], collectives, tuple(one["codec_s"]))

        return cls(**{**data, "buckets": tuple(bucket(one) for one in data["buckets"])})


def plan(spec: RunSpec, cpu: Profile, device: Profile) -> StepPlan:
    """
    Args:
        cpu: of this machine, for what is sent.
        device: for how long it takes.

    Raises:
        InputError: the strategy is none whose steps the simulator knows, or the profile does not fit it.
    """
    strategy = _STRATEGIES.get(spec.strategy.target)
    if strategy is None:
        raise InputError(
            f"strategy={spec.strategy.name}: cannot be simulated; known: {', '.join(_STRATEGIES.values())}"
        )
    if spec.strategy.params.get("compress", "all") != "all":
        raise InputError(f"strategy.compress={spec.strategy.params['compress']}: cannot be simulated; known: all")
    codec_s: list[tuple[float, ...]]
    if strategy == "torch_ddp":
        found = torch_buckets(spec, device)
        codec_s = [(0.0, 0.0)] * len(found)
    else:
        found = buckets(spec, cpu)
        codec_s = [tuple(device.codec_s(n, round_) for round_ in range(len(c) + 1)) for n, c in found]
    ends = itertools.accumulate(n for n, _ in found)
    return StepPlan(
        before_s=device.forward_s + device.other_s,
        backward_s=device.backward_s,
        after_s=device.optimizer_s,
        buckets=tuple(
            BucketPlan(n, min(_ready_s(device, end), device.backward_s), c, s)
            for (n, c), end, s in zip(found, ends, codec_s, strict=True)
        ),
        algorithm=str(spec.strategy.params.get("collective", "gloo")),
    )


def _ready_s(profile: Profile, end: int) -> float:
    """Of backward, until the gradients of the last `end` elements are there: a layer's whole time comes before any."""
    seen, seconds = 0, 0.0
    for layer in reversed(profile.layers):
        if seen >= end:
            break
        seen += layer.parameters
        seconds += layer.backward_s
    return seconds
