"""How long the parts of a training step take on a device: what the virtual clock paces workers by.

A profile is measured on a device (`longhaul profile`, and before a run on this machine's own processor), or made by
arithmetic, and then marked `assumed`. Seconds are those of one worker's step with `batch_size` samples.
"""

from __future__ import annotations

import bisect
import dataclasses
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from testbed.core.device.factored_layer import FactoredLayer
from testbed.core.errors import InputError
from testbed.core.spec.redirects import in_part_text

SCHEMA_VERSION = 1
MOMENTS_SHARE = 0.25
"""Of the optimizer's time that SLAMB spends before momenta are sent; measured on an AMD EPYC: 0.24 to 0.31."""


@dataclass(frozen=True, kw_only=True)
class LayerTimes:
    """One module that has parameters or computes, in the order of forward."""

    name: str
    parameters: int
    """Elements."""
    forward_s: float
    backward_s: float
    """Up to its own gradients; for layers without parameters it is part of the next one that has some."""
    forward_flop: float = 0.0
    """Of one batch, two a multiplication with addition; layers that only copy or compare have none."""


@dataclass(frozen=True, kw_only=True)
class CodecTimes:
    """Seconds of reducing one bucket of `elements`, by round: (phase, seconds), in order."""

    elements: int
    rounds: tuple[tuple[str, float], ...]


@dataclass(frozen=True, kw_only=True)
class Collective:
    """One collective of a step, as rank 0 sees it."""

    kind: str
    """all_reduce, all_gather, all_to_all, or chain, from one rank to all or back."""
    size_bytes: int
    """What one rank holds; of an all_to_all its whole input."""
    share: float = 1.0
    """How often it is there in a step, or in a cycle where that has more, on average."""


@dataclass(frozen=True, kw_only=True)
class WorkTimes:
    """A piece of what a strategy computes beside gradients and their update, such as one factor of K-FAC."""

    name: str
    kind: str
    """What pieces of one kind have in common is how long they take for their size: "factor", "inverse" and so on."""
    size: int
    """Of a factor or its inverse the dimension."""
    seconds: float
    """Each time it is done."""
    flop: float = 0.0
    """Likewise; what it would take on a device of which only its speed is known follows from them."""
    share: float = 1.0
    """How often a rank does it in a step, on average over steps and ranks; 1 until a plan says so."""


@dataclass(frozen=True, kw_only=True)
class Profile:
    """Times of one workload with one compressor on one device."""

    workload: str
    """The workload and its parameters, as text that two profiles can be compared by."""
    compressor: str
    batch_size: int
    layers: tuple[LayerTimes, ...]
    forward_s: float
    """Of all layers, drawing the batch and the loss included."""
    backward_s: float
    optimizer_s: float
    other_s: float = 0.0
    """What a step computes outside its phases, such as zeroing gradients."""
    codec: tuple[CodecTimes, ...] = ()
    """By elements, ascending; sizes that no bucket of a step has may be among them."""
    buckets: tuple[int, ...] = ()
    """Elements of each bucket of a step, in order."""
    collectives: tuple[Collective, ...] = ()
    """Of one step; of a whole cycle where that has more."""
    cycle_steps: int = 1
    """So many steps have each of these buckets and collectives once, most of them none."""
    work: tuple[WorkTimes, ...] = ()
    """What the strategy computes besides."""
    switched: Profile | None = None
    """Of the same training once its transform has changed the model; None where none does."""
    factored: tuple[FactoredLayer, ...] = ()
    """The layers that second-order strategies work on, in the order of forward."""
    cpu_step_s: float = 0.0
    """CPU seconds that this machine spends on one worker's step, without communication; the device's do not count."""
    evaluate_cpu_s: float = 0.0
    """Likewise on one evaluation, by one worker; 0 where the workload has no metric."""
    assumed: bool = False
    """Made by arithmetic, not measured."""
    provenance: dict[str, Any] = field(default_factory=dict)

    @property
    def codec_step_s(self) -> float:
        """Of one step's compression and decompression; the mean of a cycle."""
        rounds = range(max((len(bucket.rounds) for bucket in self.codec), default=0))
        cycle_s = sum(self.codec_s(elements, round_) for elements in self.buckets for round_ in rounds)
        return cycle_s / self.cycle_steps

    @property
    def work_step_s(self) -> float:
        """Of the strategy's own work in a step; the mean over steps and ranks."""
        return sum(piece.share * piece.seconds for piece in self.work)

    @property
    def step_s(self) -> float:
        """All that a step computes."""
        phases_s = self.forward_s + self.backward_s + self.optimizer_s + self.other_s
        return phases_s + self.codec_step_s + self.work_step_s

    def codec_s(self, elements: int, round_: int) -> float:
        """Seconds of round `round_` of a bucket of `elements`: as measured, in proportion between two measured sizes
        and beyond the last; 0 where no bucket had such a round."""
        at = bisect.bisect_left([bucket.elements for bucket in self.codec], elements)
        known = [bucket for bucket in self.codec[max(0, at - 1) : at + 1] if round_ < len(bucket.rounds)]
        if not known:
            return 0.0
        low, high = known[0], known[-1]
        low_s, high_s = low.rounds[round_][1], high.rounds[round_][1]
        if low.elements < elements < high.elements:
            share = (elements - low.elements) / (high.elements - low.elements)
            return low_s + share * (high_s - low_s)
        nearest, seconds = (high, high_s) if elements >= high.elements else (low, low_s)
        return seconds * elements / nearest.elements if elements > nearest.elements else seconds

    def with_codec_of(self, other: Profile, speedup: float = 1.0) -> Profile:
        """This device's layers with the codec of another one, `speedup` times as fast."""
        codec = tuple(
            CodecTimes(elements=b.elements, rounds=tuple((phase, s / speedup) for phase, s in b.rounds))
            for b in other.codec
        )
        return dataclasses.replace(
            self,
            compressor=other.compressor,
            codec=codec,
            buckets=other.buckets,
            collectives=other.collectives,
            cycle_steps=other.cycle_steps,
        )

    def with_model_of(self, other: Profile) -> Profile:
        """The same training with its layers, forward and backward as another measurement has them, if they are the same
        layers; what this machine spends on a step stays as it was found here."""
        if any(self.mismatches(other)):
            return self
        then = self.switched
        if then is not None and other.switched is not None:
            then = then.with_model_of(other.switched)
        return dataclasses.replace(
            self, layers=other.layers, forward_s=other.forward_s, backward_s=other.backward_s, switched=then
        )

    def mismatches(self, other: Profile) -> Iterator[str]:
        """Why this profile's layers cannot time the training that `other` was taken from."""
        if self.workload != other.workload:
            yield f"it is of workload {self.workload}, not {other.workload}"
        if self.batch_size != other.batch_size:
            yield f"it is of batches of {self.batch_size} samples, not {other.batch_size}"
        ours, theirs = _shape(self), _shape(other)
        if ours != theirs:
            unlike = next((name for name, n in theirs.items() if ours.get(name) != n), next(iter(ours), ""))
            yield f"its layers are others: {unlike} has {ours.get(unlike)} parameters, not {theirs.get(unlike)}"

    def to_json(self) -> dict[str, Any]:
        return {"schema_version": SCHEMA_VERSION, **dataclasses.asdict(self)}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Profile:
        """Read one; parts are named as they are now, so that those of older profiles compare equal.

        Raises:
            ValueError: it is no profile, or of another version.
        """
        if not isinstance(data, dict) or data.get("schema_version") != SCHEMA_VERSION:
            found = data.get("schema_version") if isinstance(data, dict) else type(data).__name__
            raise ValueError(f"not a profile of version {SCHEMA_VERSION}, found {found}")
        fields = {key: value for key, value in data.items() if key != "schema_version"}
        try:
            fields |= {part: in_part_text(fields[part]) for part in ("workload", "compressor")}
            provenance = fields.get("provenance", {})
            if "strategy" in provenance:
                fields["provenance"] = provenance | {"strategy": in_part_text(provenance["strategy"])}
            fields["layers"] = tuple(LayerTimes(**layer) for layer in fields["layers"])
            fields["codec"] = tuple(
                CodecTimes(elements=b["elements"], rounds=tuple((str(p), float(s)) for p, s in b["rounds"]))
                for b in fields["codec"]
            )
            fields["buckets"] = tuple(fields["buckets"])
            fields["collectives"] = tuple(Collective(**c) for c in fields["collectives"])
            fields["factored"] = tuple(FactoredLayer(**layer) for layer in fields.get("factored", ()))
            if fields.get("switched") is not None:
                fields["switched"] = cls.from_json({"schema_version": SCHEMA_VERSION, **fields["switched"]})
            fields["work"] = tuple(WorkTimes(**piece) for piece in fields.get("work", ()))
            return cls(**fields)
        except (AttributeError, KeyError, TypeError) as error:
            raise ValueError(f"not a profile: {error}") from error


def _shape(profile: Profile) -> dict[str, int]:
    return {layer.name: layer.parameters for layer in profile.layers if layer.parameters}


def read_profile(path: Path) -> Profile:
    """
    Raises:
        InputError: it cannot be read, or is no profile.
    """
    try:
        return Profile.from_json(json.loads(path.read_text()))
    except (OSError, ValueError) as error:
        raise InputError(f"profile {path}: {error}") from error
