"""Times of the parts of a training step on a device, by which the virtual clock paces workers.

A profile is measured on a device (`longhaul profile`, and before a run on this machine's own CPU), or made by
arithmetic, and then marked `assumed`. Seconds are those of one worker's step with `batch_size` samples.
"""

from __future__ import annotations

import bisect
import dataclasses
import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from testbed.core.device.codecs.work import CodecTimes
from testbed.core.device.factored_layer import FactoredLayer
from testbed.core.errors import InputError
from testbed.core.spec.redirects import in_part_text

SCHEMA_VERSION = 1
MEASURED, ASSUMED, SCALED = "measured", "assumed", "scaled"
MOMENTS_SHARE = 0.25
"""Share of the optimizer's time that SLAMB spends before momenta are sent; measured on an AMD EPYC: 0.24 to 0.31."""


@dataclass(frozen=True, kw_only=True)
class TensorTimes:
    """One parameter of a layer."""

    elements: int
    """Number of elements of its gradient, as it is sent."""
    shape: tuple[int, ...]
    """Shape of the parameter; of a scaled replay, that of the model which it stands for."""
    backward_s: float | None = None
    """Seconds of backward from the gradient before it until its own is ready; None if only the layer's is known."""


@dataclass(frozen=True, kw_only=True)
class LayerTimes:
    """One module that has parameters or computes, in the order of forward."""

    name: str
    parameters: int
    """Number of elements of its parameters."""
    forward_s: float
    backward_s: float
    """Seconds of backward up to its own gradients; without parameters they are part of the next layer with some."""
    forward_flop: float = 0.0
    """FLOPs of one batch, two for a multiplication with addition; layers that only copy or compare have none."""
    tensors: tuple[TensorTimes, ...] = ()
    """Parameters of its own that learn, in the order of the module; empty in profiles of older versions."""

    @property
    def gradients(self) -> Iterator[tuple[int, float]]:
        """Yield (elements, seconds of backward) of its gradients in the order of backward, which is the reverse.

        Where only the layer's time is known, all of it comes before the first: never too early.
        """
        if self.tensors and all(tensor.backward_s is not None for tensor in self.tensors):
            for tensor in reversed(self.tensors):
                yield tensor.elements, tensor.backward_s or 0.0
        else:
            yield self.parameters, self.backward_s

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> LayerTimes:
        tensors = (TensorTimes(**{**tensor, "shape": tuple(tensor["shape"])}) for tensor in data.get("tensors", ()))
        return cls(**{**data, "tensors": tuple(tensors)})


@dataclass(frozen=True, kw_only=True)
class Collective:
    """One collective of a step, as rank 0 sees it."""

    kind: str
    """Kind of collective: all_reduce, all_gather, all_to_all, or chain, from one rank to all or back."""
    size_bytes: int
    """Bytes that one rank holds; for an all_to_all its whole input."""
    share: float = 1.0
    """Mean number of times in a step, or in a cycle if that has several steps."""


@dataclass(frozen=True, kw_only=True)
class WorkTimes:
    """One item of a strategy's computing in addition to gradients and their update, such as a factor of K-FAC."""

    name: str
    kind: str
    """Kind of work, such as "factor" or "inverse". Items of one kind share how their seconds depend on their size."""
    size: int
    """Size of the item: the dimension of a factor or its inverse."""
    seconds: float
    """Seconds each time it is done."""
    flop: float = 0.0
    """FLOPs each time it is done; seconds on a device of which only the speed is known follow from them."""
    operation: str = ""
    """Operation by which devices with measured ones time it; "" where none does."""
    calls: int = 1
    """Number of equal operations that it is made of."""
    share: float = 1.0
    """Mean number of times that a rank does it in a step, over steps and ranks; 1 until a plan says so."""


@dataclass(frozen=True, kw_only=True)
class Profile:
    """Times of one workload with one compressor on one device."""

    workload: str
    """The workload and its parameters, as text that two profiles can be compared by."""
    compressor: str
    batch_size: int
    layers: tuple[LayerTimes, ...]
    forward_s: float
    """Seconds of all layers in forward, with drawing the batch and the loss."""
    backward_s: float
    optimizer_s: float
    other_s: float = 0.0
    """Seconds of computing outside the phases of a step, such as zeroing gradients."""
    codec: tuple[CodecTimes, ...] = ()
    """Times of the codec by elements, ascending; sizes that no bucket of a step has may be among them."""
    buckets: tuple[int, ...] = ()
    """Elements of each bucket of a step, in order."""
    collectives: tuple[Collective, ...] = ()
    """Collectives of one step, or of a whole cycle if that has several steps."""
    cycle_steps: int = 1
    """Number of steps in which each of these buckets and collectives comes once; most steps have none of them."""
    work: tuple[WorkTimes, ...] = ()
    """Additional computing of the strategy."""
    switched: Profile | None = None
    """Times of the same training after its transform has changed the model; None if no transform does."""
    factored: tuple[FactoredLayer, ...] = ()
    """The layers that second-order strategies work on, in the order of forward."""
    cpu_step_s: float = 0.0
    """CPU seconds that this machine spends on one worker's step, without communication; the device's do not count."""
    evaluate_cpu_s: float = 0.0
    """CPU seconds that this machine spends on one worker's evaluation; 0 if the workload has no metric."""
    assumed: bool = False
    """True if the profile was made by arithmetic, not measured."""
    basis: str = MEASURED
    """Basis of its times: measured, assumed, or scaled, which is the shape of one device and the length of another."""
    passes: tuple[tuple[int, float], ...] = ()
    """Pairs of samples and seconds of forward and backward, of all known batches; empty: in proportion to samples."""
    unknowns: tuple[str, ...] = ()
    """Phrases for what is not known of its times, as when gradients are ready where only a step's length is known."""
    provenance: dict[str, Any] = field(default_factory=dict)

    def ready_s(self, elements: int) -> float:
        """Return the seconds of backward until the gradients of the last `elements` elements of the model are ready."""
        seen, seconds = 0, 0.0
        for layer in reversed(self.layers):
            for count, gradient_s in layer.gradients:
                if seen >= elements:
                    return seconds
                seen += count
                seconds += gradient_s
        return seconds

    def needed_s(self, elements: int) -> float:
        """Return the seconds of forward until the layer begins that holds the first of the last `elements` elements."""
        seen, later_s = 0, 0.0
        for layer in reversed(self.layers):
            later_s += layer.forward_s
            seen += layer.parameters
            if seen >= elements:
                break
        return max(0.0, sum(layer.forward_s for layer in self.layers) - later_s)

    @property
    def codec_step_s(self) -> float:
        """Seconds of one step's compression and decompression; the mean of a cycle."""
        return sum(self.codec_s(*each) for each in self.codec_rounds) / self.cycle_steps

    @property
    def codec_rounds(self) -> list[tuple[int, int]]:
        """Pairs (elements, round) of all buckets; some may have no such round, and then it takes no time."""
        rounds = range(max((len(bucket.rounds) for bucket in self.codec), default=0))
        return [(elements, round_) for elements in self.buckets for round_ in rounds]

    @property
    def work_step_s(self) -> float:
        """Seconds of the strategy's own work in a step; the mean over steps and ranks."""
        return sum(piece.share * piece.seconds for piece in self.work)

    @property
    def step_s(self) -> float:
        """Seconds of all computing of a step."""
        return sum(
            (self.forward_s, self.backward_s, self.optimizer_s, self.other_s, self.codec_step_s, self.work_step_s)
        )

    def codec_s(self, elements: int, round_: int) -> float:
        """Return the seconds of round `round_` of a bucket of `elements`.

        Between two measured sizes and beyond the last they are in proportion; 0 if no bucket had such a round.
        """
        at = bisect.bisect_left([bucket.elements for bucket in self.codec], elements)
        if not (known := [one for one in self.codec[max(0, at - 1) : at + 1] if round_ < len(one.rounds)]):
            return 0.0
        low, high = known[0], known[-1]
        low_s, high_s = low.rounds[round_][1], high.rounds[round_][1]
        if low.elements < elements < high.elements:
            share = (elements - low.elements) / (high.elements - low.elements)
            return low_s + share * (high_s - low_s)
        nearest, seconds = (high, high_s) if elements >= high.elements else (low, low_s)
        return seconds * elements / nearest.elements if elements > nearest.elements else seconds

    @property
    def scale(self) -> float:
        """Factor by which the model's tensors are larger than what is sent of them; 1 but for scaled replays."""
        tensors = [tensor for layer in self.layers for tensor in layer.tensors]
        sent = sum(tensor.elements for tensor in tensors)
        return sum(math.prod(tensor.shape) for tensor in tensors) / sent if sent else 1.0

    def with_codec_of(self, other: Profile, speedup: float = 1.0) -> Profile:
        """Return this device's layers with the codec of another one, `speedup` times as fast."""
        codec = tuple(dataclasses.replace(b, rounds=tuple((p, s / speedup) for p, s in b.rounds)) for b in other.codec)
        return dataclasses.replace(
            self,
            compressor=other.compressor,
            codec=codec,
            buckets=other.buckets,
            collectives=other.collectives,
            cycle_steps=other.cycle_steps,
        )

    def with_model_of(self, other: Profile) -> Profile:
        """Return the same training with the layers' times of another measurement, if they are the same layers.

        CPU seconds that this machine spends on a step stay as they were found here.
        """
        if any(self.mismatches(other)):
            return self
        if (then := self.switched) is not None and other.switched is not None:
            then = then.with_model_of(other.switched)
        return dataclasses.replace(
            self, layers=other.layers, forward_s=other.forward_s, backward_s=other.backward_s, switched=then
        )

    def mismatches(self, other: Profile) -> Iterator[str]:
        """Yield a line for each reason why its layers cannot time the training that `other` was taken from."""
        if self.workload != other.workload:
            yield f"it is of workload {self.workload}, not {other.workload}"
        if self.batch_size != other.batch_size:
            yield f"it is of batches of {self.batch_size} samples, not {other.batch_size}"
        if (ours := _shape(self)) != (theirs := _shape(other)):
            unlike = next((name for name, n in theirs.items() if ours.get(name) != n), next(iter(ours), ""))
            yield f"its layers are others: {unlike} has {ours.get(unlike)} parameters, not {theirs.get(unlike)}"

    def to_json(self) -> dict[str, Any]:
        return {"schema_version": SCHEMA_VERSION, **dataclasses.asdict(self)}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Profile:
        """Return the profile; parts have their present names, so that those of older profiles compare equal.

        Raises:
            ValueError: The data are no profile, or of another version.
        """
        if not isinstance(data, dict) or data.get("schema_version") != SCHEMA_VERSION:
            found = data.get("schema_version") if isinstance(data, dict) else type(data).__name__
            raise ValueError(f"not a profile of version {SCHEMA_VERSION}, found {found}")
        fields = {key: value for key, value in data.items() if key != "schema_version"}
        try:
            fields |= {part: in_part_text(fields[part]) for part in ("workload", "compressor")}
            if "strategy" in (provenance := fields.get("provenance", {})):
                fields["provenance"] = provenance | {"strategy": in_part_text(provenance["strategy"])}
            fields["layers"] = tuple(map(LayerTimes.from_json, fields["layers"]))
            fields["basis"] = fields.get("basis", ASSUMED if fields.get("assumed") else MEASURED)
            fields["unknowns"] = tuple(map(str, fields.get("unknowns", ())))
            fields["codec"] = tuple(CodecTimes.from_json(bucket) for bucket in fields["codec"])
            fields["passes"] = tuple((int(samples), float(s)) for samples, s in fields.get("passes", ()))
            fields["buckets"] = tuple(fields["buckets"])
            fields["collectives"] = tuple(Collective(**one) for one in fields["collectives"])
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
    """Return the profile of a file.

    Raises:
        InputError: The file cannot be read, or is no profile.
    """
    try:
        return Profile.from_json(json.loads(path.read_text()))
    except (OSError, ValueError) as error:
        raise InputError(f"profile {path}: {error}") from error
