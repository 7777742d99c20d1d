"""Device models: convert compute times measured on this CPU to times on the emulated device.

Pure arithmetic on profiles, so both the orchestrator and the workers may import it.
"""

from __future__ import annotations

import copy
import dataclasses
import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, ClassVar

from testbed.core.declaration import Declared
from testbed.core.device.by_flop import FORWARD_SHARE, at_rate, lasting, share_left, with_backward_at_parameters
from testbed.core.device.codecs.library import CODECS, CPU, codec_library
from testbed.core.device.kinds import Speedup, StepSeconds, WorkGrowth, WorkSeconds, seconds
from testbed.core.device.measured_codec import with_measured_codec
from testbed.core.device.profile import ASSUMED, Profile, WorkTimes, read_profile
from testbed.core.device.timeline_profile import by_ratios, micro_batches, on_timeline
from testbed.core.device.timelines.timeline_file import is_timeline, timeline_of
from testbed.core.errors import InputError
from testbed.core.kinds import Choice, PathOf
from testbed.core.renaming import Renamed
from testbed.core.user_files.json_file import read_json


class Device(Renamed, Declared, ABC):
    """Base of devices. Constructors take keyword-only parameters and raise ValueError for each bad one."""

    renamed: ClassVar[Mapping[str, str]] = {"faults": "validate"}

    lengths: Mapping[str, int] = MappingProxyType({})
    """Batch size by model, of a device that knows some replays alone: the first one is its usual run."""
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
        unknowns = dict.fromkeys((*found.unknowns, *(() if then is None else then.unknowns)))
        return dataclasses.replace(found, switched=then, unknowns=tuple(unknowns))

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
        """Return the profile of layers with the times of the codec.

        Args:
            layers: Times of the layers on this device.
            cpu: Times of the training on a core of this machine.
            slowness: How many times longer this device takes than the one that `codecs` names.

        Raises:
            InputError: The codec was not measured.
        """
        if self.codecs == CPU:
            return layers.with_codec_of(cpu, self.codec_speedup)
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
        work_s: WorkSeconds | None = None,
        growth: WorkGrowth | None = None,
    ) -> None:
        self.step_s, self.codec_speedup, self.codecs = seconds(step_s), float(codec_speedup), codecs
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


class Profiled(Modelled):
    """A device that was measured: a profile of `longhaul profile`, or a timeline of docs/timelines.md.

    Args:
        file: Profile, or timeline, of the same model and batch size. A profile is of the same workload too. A relative
            path begins where the command was given.
        codec_speedup: Speed-up of compression over `codecs`. Where the profile is of another compressor, number of
            workers or size of buckets; null takes its times as they are.
        codecs: Codec times: this CPU's, or a measured accelerator's. Those of an accelerator replace the profile's too.

    Raises:
        ValueError: A parameter is not what it should be.
    """

    def __init__(
        self,
        *,
        file: Annotated[str, PathOf("a profile", absolute=False)],
        codec_speedup: Speedup | None = None,
        codecs: Annotated[str, Choice(CODECS)] = CPU,
    ) -> None:
        self.file = Path(str(file))
        self.codec_speedup, self.codecs = 1.0 if codec_speedup is None else float(codec_speedup), codecs

    def validate(self) -> Iterator[str]:
        if not self.file.is_file():
            yield f"device.file={self.file}: no such file"

    def profile(self, cpu: Profile) -> Profile:
        measured = self._read(cpu)
        faults = [f"device.file={self.file}: {why}" for why in measured.mismatches(cpu)]
        seconds = {piece.name: piece.seconds for piece in measured.work}
        if lacking := [piece.name for piece in cpu.work if piece.name not in seconds]:
            faults.append(
                f"device.file={self.file}: it does not say how long {len(lacking)} pieces of the strategy's work take"
                f" (the first is {lacking[0]}); device=h200 times K-FAC's, device=paced any by FLOPs"
            )
        if faults:
            raise InputError(*faults)
        device = dataclasses.replace(
            measured,
            cpu_step_s=cpu.cpu_step_s,
            work=tuple(dataclasses.replace(piece, seconds=seconds[piece.name]) for piece in cpu.work),
            factored=cpu.factored,
            buckets=cpu.buckets,
            collectives=cpu.collectives,
            cycle_steps=cpu.cycle_steps,
        )
        return self._with_its_codec(device, measured, cpu)

    def _with_its_codec(self, device: Profile, measured: Profile, cpu: Profile) -> Profile:
        """Keep the codec of the file where it is that of the training: ranks and buckets count too."""
        same_codec = (
            measured.compressor == cpu.compressor
            and measured.buckets == cpu.buckets
            and measured.provenance.get("workers") == cpu.provenance.get("workers")
        )
        return device if same_codec and self.codecs == CPU else self.with_codec(device, cpu)

    def _read(self, cpu: Profile) -> Profile:
        data, where = read_json(self.file), f"device.file={self.file}"
        if is_timeline(data):
            return on_timeline(timeline_of(data, where), cpu, where, tuple(micro_batches(cpu, (cpu.batch_size,))))
        return read_profile(self.file)

    def switched(self, before: Profile, after: Profile) -> Profile:
        found = (whole := self.layers(before)).switched  # the device itself may have been measured with this transform
        if found is None or any(found.mismatches(after)):
            return self.with_codec(by_ratios(whole, before, after, f"device.file={self.file}"), after)
        own = dataclasses.replace(found, cpu_step_s=after.cpu_step_s, collectives=after.collectives)
        return self._with_its_codec(own, found, after)
