"""What a step does, as far as time and bytes are concerned: read from a profile and a spec."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from testbed.analysis.simulator.model.buckets import REPLAY, Bucket, buckets, momenta_bucket, torch_buckets
from testbed.analysis.simulator.model.kfac import SecondOrderPlan, second_order_plan
from testbed.core.device.factored_layer import ELEMENT_BYTES
from testbed.core.device.profile import MOMENTS_SHARE, Collective, Profile
from testbed.core.errors import InputError
from testbed.core.models.catalogue import find_model
from testbed.core.spec.run_spec import RunSpec

_STRATEGIES = {
    "testbed.worker.strategies.ddp.DDP": "ddp",
    "testbed.worker.strategies.lamb.LAMB": "ddp",
    "testbed.worker.strategies.torch_ddp.TorchDDP": "torch_ddp",
    "testbed.worker.strategies.dear.DeAR": "dear",
    "testbed.worker.strategies.kfac.KFAC": "kfac",
    "testbed.worker.strategies.slamb.SLAMB": "slamb",
}
"""Whose steps they make; `lamb` sends what `ddp` does, and its update is in the profile."""
_KNOWN = ("ddp", "torch_ddp", "dear", "lamb", "slamb", "dkfac", "mpd_kfac", "spd_kfac", "pad_kfac", "dp_kfac")
"""By the names of their configurations."""


@dataclass(frozen=True)
class BucketPlan:
    elements: int
    ready_s: float
    """Of backward, until all its gradients are there."""
    collectives: tuple[Collective, ...]
    """After one another."""
    codec_s: tuple[float, ...]
    """Before the first, between, and after the last."""
    needed_s: float = 0.0
    """Of forward, until its parameters are read."""


@dataclass(frozen=True)
class StepPlan:
    before_s: float
    """Forward, what belongs to no phase, and all micro-batches but the last."""
    backward_s: float
    """Of the last micro-batch."""
    after_s: float
    """The optimizer."""
    buckets: tuple[BucketPlan, ...]
    algorithm: str
    """Of the collectives."""
    is_halved: bool = False
    """The second half of each all-reduce is put off to the next forward, and so is the update."""
    second_order: SecondOrderPlan | None = None
    average: Collective | None = None
    """Of the parameters, after the update of a share of the steps."""
    buffers_bytes: float = 0.0
    """Bytes that rank 0 sends to all before forward."""

    @property
    def parameters(self) -> int:
        """Elements of the model."""
        if self.average is not None:
            return self.average.size_bytes // ELEMENT_BYTES
        return sum(bucket.elements for bucket in self.buckets)

    @property
    def work_s(self) -> float:
        """Of what the strategy computes besides, on average over ranks."""
        return 0.0 if self.second_order is None else self.second_order.work_s

    @property
    def compute_s(self) -> float:
        codec_s = sum(sum(bucket.codec_s) for bucket in self.buckets)
        return self.before_s + self.backward_s + self.after_s + codec_s + self.work_s

    def to_json(self) -> dict[str, Any]:
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> StepPlan:
        def bucket(one: Mapping[str, Any]) -> BucketPlan:
            collectives = tuple(Collective(**c) for c in one["collectives"])
            return BucketPlan(**{**one, "collectives": collectives, "codec_s": tuple(one["codec_s"])})

        second, average = data.get("second_order"), data.get("average")
        return cls(
            **{
                **data,
                "buckets": tuple(bucket(one) for one in data["buckets"]),
                "second_order": None if second is None else SecondOrderPlan.from_json(second),
                "average": None if average is None else Collective(**average),
            }
        )


def plan(spec: RunSpec, cpu: Profile, device: Profile) -> StepPlan:
    """
    Args:
        cpu: of this machine, for what is sent.
        device: for how long it takes.

    Raises:
        InputError: the strategy is none whose steps the simulator knows, or the profile does not fit it.
    """
    strategy = strategy_of(spec)
    if strategy == "slamb":
        return _sparse_plan(spec, cpu, device)
    codec_s: list[tuple[float, ...]]
    if strategy == "torch_ddp":
        found = torch_buckets(spec, device)
        codec_s = [(0.0, 0.0)] * len(found)
    else:
        found = buckets(spec, cpu)
        codec_s = [tuple(device.codec_s(n, round_) for round_ in range(len(c) + 1)) for n, c in found]
    _require_sums(spec, strategy, found)
    ends = list(itertools.accumulate(n for n, _ in found))
    last = 1 / spec.strategy.params.get("accumulate", 1)
    backward_s = last * device.backward_s
    overlaps = spec.strategy.params.get("overlap", True)
    ready_s = [min(last * device.ready_s(end), backward_s) if overlaps else backward_s for end in ends]
    return StepPlan(
        before_s=device.forward_s + device.other_s + (1 - last) * device.backward_s,
        backward_s=backward_s,
        after_s=device.optimizer_s,
        buckets=tuple(
            BucketPlan(n, at_s, c, s, last * device.needed_s(end))
            for (n, c), at_s, s, end in zip(found, ready_s, codec_s, ends, strict=True)
        ),
        algorithm=str(spec.strategy.params.get("collective", "ring" if strategy == "dear" else "gloo")),
        is_halved=strategy == "dear",
        second_order=second_order_plan(spec, device, ends) if strategy == "kfac" else None,
        buffers_bytes=_buffers_bytes(spec),
    )


def _buffers_bytes(spec: RunSpec) -> float:
    """Return what rank 0 sends to all in each step beside gradients.

    Raises:
        InputError: Only the model itself knows how large its buffers are.
    """
    if not spec.strategy.params.get("broadcast_buffers"):
        return 0.0
    if spec.workload.target != REPLAY:
        raise InputError(
            f"strategy.broadcast_buffers: cannot be simulated with workload={spec.workload.name}, whose buffers are not"
            " known; use workload=replay, or leave it out"
        )
    params = spec.workload.params
    return find_model(str(params["model"]), params.get("tokens")).buffers_bytes / spec.scale


def _sparse_plan(spec: RunSpec, cpu: Profile, device: Profile) -> StepPlan:
    """Momenta leave after backward and their own update, all that have their turn at once."""
    (elements, collectives), average = momenta_bucket(spec, cpu)
    moments_s = MOMENTS_SHARE * device.optimizer_s
    codec_s = [device.codec_s(elements, round_) for round_ in range(len(collectives) + 1)]
    codec_s[0] += moments_s
    return StepPlan(
        before_s=device.forward_s + device.other_s,
        backward_s=device.backward_s,
        after_s=device.optimizer_s - moments_s,
        buckets=(BucketPlan(elements, device.backward_s, collectives, tuple(codec_s)),),
        algorithm=str(spec.strategy.params.get("collective", "gloo")),
        average=average,
    )


def strategy_of(spec: RunSpec) -> str:
    """Which kind of steps its strategy makes.

    Raises:
        InputError: the simulator knows none such.
    """
    strategy = _STRATEGIES.get(spec.strategy.target)
    if strategy is None:
        raise InputError(f"strategy={spec.strategy.name}: cannot be simulated; known: {', '.join(_KNOWN)}")
    if strategy != "kfac" and spec.strategy.params.get("compress", "all") != "all":
        raise InputError(f"strategy.compress={spec.strategy.params['compress']}: cannot be simulated; known: all")
    if strategy == "dear" and spec.strategy.params.get("clip_norm") is not None:
        raise InputError("strategy=dear strategy.clip_norm: what it waits for is not simulated; leave it out")
    return strategy


def _require_sums(spec: RunSpec, strategy: str, found: Sequence[Bucket]) -> None:
    asked = f"strategy={spec.strategy.name} compressor={spec.compressor.name}"
    if strategy == "dear" and any([one.kind for one in c] != ["all_reduce"] for _, c in found):
        raise InputError(f"{asked}: only sums are simulated in halves")
    if strategy == "kfac" and any(one.kind != "all_reduce" for _, c in found for one in c):
        raise InputError(
            f"{asked}: beside factors only sums are simulated; use a compressor that sums, as none or fp16"
        )
