"""Device models: convert compute times measured on this CPU to times on the emulated device.

Pure arithmetic on profiles, so both the orchestrator and the workers may import it.
"""

from __future__ import annotations

import copy
import dataclasses
import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Annotated, Any, ClassVar

from testbed.core.declaration import Declared
from testbed.core.device.by_flop import FORWARD_SHARE, at_rate, lasting, share_left, with_backward_at_parameters
from testbed.core.device.codecs.library import CODECS, CPU, codec_library
from testbed.core.device.host_costs import unknowns
from testbed.core.device.kinds import HostSeconds, Speedup, StepSeconds, WorkGrowth, WorkSeconds, seconds
from testbed.core.device.measured_codec import with_measured_codec
from testbed.core.device.profile import ASSUMED, Profile, WorkTimes
from testbed.core.errors import InputError
from testbed.core.kinds import Choice
from testbed.core.renaming import Renamed


class Device(Renamed, Declared, ABC):
    """Base of devices. Constructors take keyword-only parameters and raise ValueError for each bad one."""

    renamed: ClassVar[Mapping[str, str]] = {"faults": "validate"}

    lengths: Mapping[str, int] = MappingProxyType({})
    """Batch size by model, of a device that knows some replays alone: the first one is its usual run."""
    host_s: Mapping[str, float] = MappingProxyType({})
    """Seconds that its host takes for communication, by `HOST_COSTS`."""
    computes: ClassVar[bool] = False
    """True if phase times come from computing on this machine, not from a model or profile."""

    def validate(self) -> Iterator[str]:
        """Yield a line for each thing that is wrong with it on the machine where the command was given."""
        yield from ()

    def validate_training(self, target: str, params: Mapping[str, Any], batch_size: int) -> Iterator[str]:
        """Yield a line for each reason why it has no times of this workload with batches of this size."""
        yield from ()

    def validate_compressor(self, target: str, params: Mapping[str, Any]) -> Iterator[str]:
        """Yield a line for each reason why it has no times of this compressor."""
        yield from ()

    def validate_work(self, work: Sequence[WorkTimes]) -> Iterator[str]:
        """Yield a line for each reason why it has no times of a strategy's own work."""
        yield from ()

    def layers(self, cpu: Profile) -> Profile:
        """Return the layers' times on this device, before it is known what else there is to do."""
        return self.profile(cpu)

    @abstractmethod
    def profile(self, cpu: Profile) -> Profile:
        """Return the times on this device of the training whose times on a core of this machine are `cpu`.

        Raises:
            InputError: These times are not known for this device.
        """

    def whole_profile(self, cpu: Profile) -> Profile:
        """Return what `profile` does, with times of the model after its transform changed it; raises as that does."""
        found, then = self.profile(cpu), None if cpu.switched is None else self.switched(cpu, cpu.switched)
        told = dict.fromkeys((*found.unknowns, *(() if then is None else then.unknowns), *unknowns(self.host_s)))
        return dataclasses.replace(found, switched=then, unknowns=tuple(told))

    def switched_layers(self, before: Profile, after: Profile) -> Profile:
        """Return the layers' times on this device, as `layers` does, for a model that has changed."""
        return self.switched(before, after)

    @abstractmethod
    def switched(self, before: Profile, after: Profile) -> Profile:
        """Return the times on this device for a model that has changed.

        Args:
            before, after: Times of both models on a core of this machine.

        Raises:
            InputError: These times are not known for this device.
        """


class Modelled(Device):
    """Base of devices that are none of this machine's, and whose codecs take the times that `codecs` names."""

    codecs: str
    codec_speedup: float

    def validate_compressor(self, target: str, params: Mapping[str, Any]) -> Iterator[str]:
        if self.codecs != CPU:
            try:
                codec_library(self.codecs).find(target, params, f"device.codecs={self.codecs}")
            except InputError as error:
                yield from error.faults

    def with_codec(self, layers: Profile, cpu: Profile, slowness: float = 1.0) -> Profile:
        """Return the profile of layers with the times of the codec; a scaled replay's are those of the whole model.

        Args:
            layers: Times of the layers on this device.
            cpu: Times of the training on a core of this machine.
            slowness: How many times longer this device takes than the one that `codecs` names.

        Raises:
            InputError: The codec was not measured.
        """
        if self.codecs == CPU:
            return layers.with_codec_of(cpu, self.codec_speedup / cpu.scale)
        return with_measured_codec(layers, cpu, self.codecs, slowness / self.codec_speedup)


class Native(Device):
    """A core of this machine: each phase lasts the CPU seconds it takes alone, times the dilation."""

    computes = True

    def profile(self, cpu: Profile) -> Profile:
        return cpu

    def switched(self, before: Profile, after: Profile) -> Profile:
        return after


class Paced(Modelled):
    """An accelerator with a fixed step time, split over the layers by their FLOPs, backward twice forward.

    An assumption, and marked as such.

    Args:
        step_s: Time of forward and backward of a step.
        codec_speedup: Speed-up of compression over `codecs`.
        codecs: Codec times: this CPU's, or a measured accelerator's.
        host_s: Host's time for communication, by kind. In addition to the links' own: before each collective, and
            before a ring passes on a segment that has come.
        work_s: Time of the strategy's own work, by kind. Such as K-FAC's "factor" and "inverse": of all its items
            together, split by their FLOPs. Kinds that are not named go at the rate of the layers' FLOPs.
        growth: Exponent b: split `work_s` by exp(b size).

    Raises:
        ValueError: A parameter is not a number above 0.
    """

    def __init__(
        self,
        *,
        step_s: StepSeconds,
        codec_speedup: Speedup = 1.0,
        codecs: Annotated[str, Choice(CODECS)] = CPU,
        host_s: HostSeconds | None = None,
        work_s: WorkSeconds | None = None,
        growth: WorkGrowth | None = None,
    ) -> None:
        self.step_s, self.codec_speedup, self.codecs = seconds(step_s), float(codec_speedup), codecs
        self.host_s = host_s or {}
        self.work_s = {kind: seconds(given) for kind, given in (work_s or {}).items()}
        self.growth = {kind: float(rate) for kind, rate in (growth or {}).items()}
        if lacking := [kind for kind in self.growth if kind not in self.work_s]:
            raise ValueError(
                f"growth.{lacking[0]}={self.growth[lacking[0]]:g}: work_s.{lacking[0]} is not set; set it (seconds a"
                f" step), or remove growth.{lacking[0]}"
            )

    def profile(self, cpu: Profile) -> Profile:
        kinds = {piece.kind for piece in cpu.work}
        if unknown := [kind for kind in self.work_s if kind not in kinds]:
            found = f"the strategy's work is {', '.join(sorted(kinds))}" if kinds else "the strategy has no such work"
            raise InputError(f"device.work_s.{unknown[0]}={self.work_s[unknown[0]]:g}: {found}")
        if cpu.work and not any(layer.forward_flop for layer in cpu.layers):
            raise InputError("device=paced: the layers have no FLOPs, so how long the strategy's work takes is unknown")
        return self.layers(cpu)

    def switched(self, before: Profile, after: Profile) -> Profile:
        """Return times by the FLOPs of both models: an assumption that favours factors, which are smaller matrices."""
        return self._fitting(before, after).profile(after)

    def switched_layers(self, before: Profile, after: Profile) -> Profile:
        return self._fitting(before, after).layers(after)

    def _fitting(self, before: Profile, after: Profile) -> Paced:
        """Return the same accelerator with less to do."""
        flop, flop_then = (sum(layer.forward_flop for layer in one.layers) for one in (before, after))
        if not flop:
            raise InputError("device=paced: the layers have no FLOPs, so how long a changed model takes is unknown")
        found = copy.copy(self)
        found.step_s = self.step_s * flop_then / flop
        found.work_s = {kind: seconds * share_left(kind, before, after) for kind, seconds in self.work_s.items()}
        return found

    def layers(self, cpu: Profile) -> Profile:
        whole = sum(layer.forward_flop for layer in cpu.layers)
        weights = [layer.forward_flop if whole else layer.parameters for layer in cpu.layers]
        total = sum(weights) or 1.0
        layers = tuple(
            lasting(layer, self.step_s * weight / total) for layer, weight in zip(cpu.layers, weights, strict=True)
        )
        paced = dataclasses.replace(
            cpu,
            layers=with_backward_at_parameters(layers),
            forward_s=self.step_s * FORWARD_SHARE,
            backward_s=self.step_s * (1 - FORWARD_SHARE),
            optimizer_s=0.0,
            other_s=0.0,
            work=tuple(self._work(cpu.work, whole / (FORWARD_SHARE * self.step_s))),
            assumed=True,
            basis=ASSUMED,
            provenance={"made_by": f"{self.step_s:g} s a step, split by the layers' FLOPs", "codec": cpu.provenance},
        )
        return self.with_codec(paced, cpu)

    def _work(self, work: Sequence[WorkTimes], flop_s: float) -> Iterator[WorkTimes]:
        largest = max((piece.size for piece in work), default=0)  # in proportion to it, which no size overflows
        weights = [
            math.exp(self.growth[piece.kind] * (piece.size - largest)) if piece.kind in self.growth else piece.flop
            for piece in work
        ]
        totals: dict[str, float] = {}
        for piece, weight in zip(work, weights, strict=True):
            totals[piece.kind] = totals.get(piece.kind, 0.0) + weight
        for piece, weight in zip(work, weights, strict=True):
            if piece.kind in self.work_s:
                yield dataclasses.replace(piece, seconds=self.work_s[piece.kind] * weight / totals[piece.kind])
            else:
                yield at_rate(piece, flop_s)
