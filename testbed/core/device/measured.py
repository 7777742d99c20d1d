"""Devices with measured timelines, and devices of papers, which take the shape of one and a published length."""

from __future__ import annotations

import contextlib
import dataclasses
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any

from testbed.core.device.codecs.library import CODECS, CPU
from testbed.core.device.device import Modelled
from testbed.core.device.factored_layer import EIGEN
from testbed.core.device.kinds import HostSeconds, Speedup, StepSeconds, seconds
from testbed.core.device.operations import operations, timed
from testbed.core.device.profile import SCALED, Profile, WorkTimes
from testbed.core.device.timeline_profile import micro_batches, on_timeline
from testbed.core.device.timelines.published import PUBLISHED, SHAPE, UNNAMED, Length
from testbed.core.device.timelines.timeline import Timeline
from testbed.core.device.timelines.timeline_library import (
    ACCELERATORS,
    MEASURED_PRECISIONS,
    measured,
    models,
    passes,
    shape_of,
)
from testbed.core.errors import InputError
from testbed.core.kinds import Choice
from testbed.core.units import format_time


class Timelines(Modelled):
    """Base of devices whose times come from a timeline."""

    measured_on: str
    """Accelerator whose operations of K-FAC time a strategy's own work."""

    def profile(self, cpu: Profile) -> Profile:
        found = self.layers(cpu)
        if not cpu.work:
            return found
        known = operations(self.measured_on)
        factor = found.provenance["timeline"].get("factor", 1.0)
        lengths_s = self.work_lengths_s(cpu)
        unknowns = list(known.unknowns(cpu.work))
        if found.basis == SCALED:
            unknowns.append(_scaled_work(known.device, factor, lengths_s))
        return dataclasses.replace(
            found,
            work=timed(cpu.work, known, self.where, factor, lengths_s),
            unknowns=(*found.unknowns, *unknowns),
            provenance={**found.provenance, "operations": {"measured_on": known.device, **known.provenance}},
        )

    def layers(self, cpu: Profile) -> Profile:
        target, params = _training(cpu)
        timeline, unknowns = self.timeline(target, params, cpu.batch_size)
        factor = float(timeline.provenance.get("factor", 1.0))
        found = self.with_codec(on_timeline(timeline, cpu, self.where, unknowns), cpu, factor)
        all_s = {size: factor * one_s for size, one_s in passes(self.measured_on, timeline.model, timeline.precision)}
        # a batch beyond the measured ones has the shape of the nearest alone
        known = (all_s if min(all_s) <= cpu.batch_size <= max(all_s) else {}) | dict(found.passes)
        found = dataclasses.replace(found, passes=tuple(sorted(known.items())))
        return dataclasses.replace(found, unknowns=(*found.unknowns, *micro_batches(cpu, tuple(known))))

    def work_lengths_s(self, cpu: Profile) -> Mapping[str, float]:
        """Return the seconds of all of a strategy's own work by kind, where these are known."""
        return {}

    def validate_work(self, work: Sequence[WorkTimes]) -> Iterator[str]:
        yield from (f"{self.where}: {fault}" for fault in operations(self.measured_on).faults(work))

    def validate_training(self, target: str, params: Mapping[str, Any], batch_size: int) -> Iterator[str]:
        try:
            self.timeline(target, params, batch_size)
        except InputError as error:
            yield from error.faults

    def switched(self, before: Profile, after: Profile) -> Profile:
        raise InputError(
            f"{self.where}: its timeline says nothing of the model that a transform leaves; use device=native, or"
            " device=paced, which goes by FLOPs"
        )

    @property
    def where(self) -> str:
        """Beginning of its faults."""
        raise NotImplementedError

    def timeline(self, target: str, params: Mapping[str, Any], batch_size: int) -> tuple[Timeline, list[str]]:
        """Return the timeline of a training, and what is not known of it beyond what it says itself.

        Args:
            target, params: The workload.

        Raises:
            InputError: There is none.
        """
        raise NotImplementedError


class Measured(Timelines):
    """An accelerator whose steps were measured: `workload=replay` of these models, see docs/timelines.md.

    Args:
        accelerator: Accelerator that was measured.
        precision: Arithmetic precision; gradients are float32.
        step_s: Time of forward and backward; null: as measured. Another device's, which takes the shape of this one's
            timeline.
        codec_speedup: Speed-up of compression over `codecs`.
        codecs: Codec times: this CPU's, or a measured accelerator's. These are longer by as much as the step is.
        host_s: Host's time for communication, by kind. In addition to the links' own: before each collective, and
            before a ring passes on a segment that has come.

    Raises:
        ValueError: A parameter is not what it should be.
    """

    def __init__(
        self,
        *,
        accelerator: Annotated[str, Choice(ACCELERATORS)],
        precision: Annotated[str, Choice(MEASURED_PRECISIONS)] = "tf32",
        step_s: StepSeconds | None = None,
        codec_speedup: Speedup = 1.0,
        codecs: Annotated[str, Choice(CODECS)] = CPU,
        host_s: HostSeconds | None = None,
    ) -> None:
        self.host_s = host_s or {}
        self.accelerator = self.measured_on = accelerator
        self.precision = precision
        self.step_s = None if step_s is None else seconds(step_s)
        self.codec_speedup, self.codecs = float(codec_speedup), codecs

    @property
    def where(self) -> str:
        return f"device={self.accelerator}"

    def timeline(self, target: str, params: Mapping[str, Any], batch_size: int) -> tuple[Timeline, list[str]]:
        _require_replay(self.where, models(self.accelerator), target)
        model = str(params["model"])
        if self.step_s is None:
            with _named(self.where):
                found = measured(self.accelerator, model, self.precision, batch_size)
            if (sample := _sample(params)) not in (None, found.sample):
                raise InputError(
                    f"{self.where}: its timeline of {found.model} is of {found.sample}, not {sample}; leave out"
                    " workload.tokens, or give the length of a step: device.step_s"
                )
            return found, []
        with _named(self.where):
            shape = shape_of(self.accelerator, model, self.precision, batch_size)
        factor = self.step_s / (shape.phases_s.forward + shape.phases_s.backward)
        return _scaled(shape, factor, batch_size, UNNAMED, "as device.step_s asks")


class Published(Timelines):
    """A device of a paper: the shape of the H200's timeline at the length that was published.

    Each length is of one model with one batch size; a replay of another is refused.

    Args:
        source: Work whose authors gave the lengths.
        codec_speedup: Speed-up of compression over `codecs`.
        codecs: Codec times: this CPU's, or a measured accelerator's. These are longer by as much as the step is.
        host_s: Host's time for communication, by kind. In addition to the links' own: before each collective, and
            before a ring passes on a segment that has come.

    Raises:
        ValueError: A parameter is not what it should be.
    """

    def __init__(
        self,
        *,
        source: Annotated[str, Choice(tuple(PUBLISHED))],
        codec_speedup: Speedup = 1.0,
        codecs: Annotated[str, Choice(CODECS)] = CPU,
        host_s: HostSeconds | None = None,
    ) -> None:
        self.host_s = host_s or {}
        self.source, self.codec_speedup, self.codecs = source, float(codec_speedup), codecs
        self.lengths = {one.model: one.batch_size for one in PUBLISHED[source].lengths}
        self.measured_on = SHAPE[0]

    @property
    def where(self) -> str:
        return f"device.source={self.source}"

    def timeline(self, target: str, params: Mapping[str, Any], batch_size: int) -> tuple[Timeline, list[str]]:
        accelerator, precision = SHAPE
        _require_replay(self.where, tuple(self.lengths), target)
        model, published = str(params["model"]), PUBLISHED[self.source]
        lengths = {(one.model, one.batch_size): one for one in published.lengths}
        length = lengths.get((model, batch_size))
        if length is None:
            known = ", ".join(f"{name} with batch_size={size}" for name, size in lengths)
            raise InputError(
                f"{self.where}: no length is published of {model} with batch_size={batch_size}; there are {known};"
                f" or give one of your own: device={accelerator} device.step_s=…"
            )
        shape = shape_of(accelerator, model, precision, batch_size)
        found, unknowns = _scaled(
            shape, length.factor(shape.phases_s), batch_size, published.device, f"by {length.source}"
        )
        return found, [*unknowns, *_other_sample(length, params, shape)]

    def work_lengths_s(self, cpu: Profile) -> Mapping[str, float]:
        _, params = _training(cpu)
        of_cholesky = all(piece.operation != EIGEN for piece in cpu.work)
        lengths = (one for one in PUBLISHED[self.source].lengths if of_cholesky)
        key = str(params["model"]), cpu.batch_size
        return next((one.work_s for one in lengths if (one.model, one.batch_size) == key), {})


def _scaled(shape: Timeline, factor: float, batch_size: int, device: str, source: str) -> tuple[Timeline, list[str]]:
    """Return a timeline of the same shape on another device, with what is not known of it."""
    scaled = shape.scaled(factor)
    passes_s = scaled.phases_s.forward + scaled.phases_s.backward
    of_batch = "" if shape.batch_size == batch_size else f" for batches of {shape.batch_size}"
    name = "an unnamed device" if device == UNNAMED else device
    unknown = (
        f"when layers begin and gradients are ready on {name} (scaled: the shape of {shape.device} in"
        f" {shape.precision}{of_batch}; forward and backward last {format_time(passes_s)}, {source})"
    )
    provenance = {"scaled_from": shape.device, "factor": factor, "length": source, **shape.provenance}
    return dataclasses.replace(scaled, device=device, batch_size=batch_size, provenance=provenance), [unknown]


def _other_sample(length: Length, params: Mapping[str, Any], shape: Timeline) -> Iterator[str]:
    asked = _sample(params) or shape.sample
    if length.sample is not None and length.sample != asked:
        yield f"how long a step of samples of {asked} is (the published length is of {length.sample})"


def _scaled_work(device: str, factor: float, lengths_s: Mapping[str, float]) -> str:
    given = "".join(f"; all of kind {kind} last {format_time(one_s)}" for kind, one_s in lengths_s.items())
    return f"how long K-FAC's work takes there (scaled: {factor:.3g} times as long as on {device}{given})"


def _training(cpu: Profile) -> tuple[str, Mapping[str, Any]]:
    """Return the class of the workload and its parameters."""
    target, _, params = cpu.workload.partition(" ")
    return target, json.loads(params)


@contextlib.contextmanager
def _named(where: str) -> Iterator[None]:
    """Begin faults with the device."""
    try:
        yield
    except InputError as error:
        raise InputError(*(f"{where}: {fault}" for fault in error.faults)) from error


def _sample(params: Mapping[str, Any]) -> str | None:
    """Return the size of a sample that a replay asks for; None if it is the model's own."""
    return None if params.get("tokens") is None else f"{params['tokens']} tokens"


def _require_replay(where: str, known: Sequence[str], target: str) -> None:
    """
    Args:
        known: Models that it has times of.

    Raises:
        InputError: The workload is another one.
    """
    if not target.endswith(".Replay"):
        raise InputError(
            f"{where}: it has timelines of models that workload=replay replays ({', '.join(known)}), not"
            " of this workload; use device=native, device=paced or a profile: device=profile device.file=…"
        )
