"""Measured timeline of a training step on an accelerator: when each layer begins and when each gradient is ready.

Times are seconds: of forward since it began, of gradients since backward began. Hooks, which measure them, may slow a
step down; so the phases are measured without hooks too, and `without_hooks` brings the times to these.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

FORMAT = "longhaul-timeline"
VERSION = 1
PRECISIONS = ("fp32", "tf32", "bf16", "fp16")
HOST_LIMITED = 1.1
"""Ratio of a step with hooks to a free-running one from which on the accelerator waited for the host."""


@dataclass(frozen=True, kw_only=True)
class Phases:
    """Seconds of the phases of a step."""

    forward: float
    backward: float
    optimizer: float

    @property
    def step_s(self) -> float:
        """Seconds of the whole step."""
        return self.forward + self.backward + self.optimizer

    def times(self, factor: float) -> Phases:
        """Return phases that are longer by this factor."""
        return Phases(forward=factor * self.forward, backward=factor * self.backward, optimizer=factor * self.optimizer)


@dataclass(frozen=True, kw_only=True)
class Timeline:
    """One step of a model with batches of one size. Fields are keys of the file, with `format` and `version`."""

    model: str
    sample: str
    """Size of one sample, such as "224 x 224 pixels" or "128 tokens"."""
    batch_size: int
    precision: str
    device: str
    software: Mapping[str, str]
    """Versions, by name."""
    optimizer: str
    phases_s: Phases
    """Phases without hooks."""
    hooked_phases_s: Phases
    """Phases of the steps that the other times are from."""
    free_running_step_s: float
    """Seconds of a step without hooks and without waiting for the device between steps."""
    host_limited: bool
    """True if the accelerator waited for the host in the steps with hooks."""
    forward_start_s: tuple[tuple[str, str, float], ...]
    """Calls of modules without modules inside: (module, kind, seconds), in order."""
    without_start: tuple[str, ...]
    """Modules whose parameters are used outside of a call of theirs, so that their start was not seen."""
    gradient_ready_s: tuple[tuple[str, tuple[int, ...], float], ...]
    """Gradients: (parameter, shape, seconds), in the order of backward."""
    provenance: Mapping[str, Any] = field(default_factory=dict)

    @property
    def key(self) -> tuple[str, str, int]:
        return self.model, self.precision, self.batch_size

    def to_json(self) -> dict[str, Any]:
        return {"format": FORMAT, "version": VERSION, **dataclasses.asdict(self)}

    def without_hooks(self) -> Timeline:
        """Return the same timeline with each phase as long as it is without hooks."""
        forward = self.phases_s.forward / self.hooked_phases_s.forward
        backward = self.phases_s.backward / self.hooked_phases_s.backward
        return dataclasses.replace(
            self,
            hooked_phases_s=self.phases_s,
            forward_start_s=tuple((name, kind, forward * at_s) for name, kind, at_s in self.forward_start_s),
            gradient_ready_s=tuple((name, shape, backward * at_s) for name, shape, at_s in self.gradient_ready_s),
        )

    def scaled(self, factor: float) -> Timeline:
        """Return the timeline of an accelerator that takes longer by this factor, all parts alike."""
        return dataclasses.replace(
            self,
            phases_s=self.phases_s.times(factor),
            hooked_phases_s=self.hooked_phases_s.times(factor),
            free_running_step_s=factor * self.free_running_step_s,
            forward_start_s=tuple((name, kind, factor * at_s) for name, kind, at_s in self.forward_start_s),
            gradient_ready_s=tuple((name, shape, factor * at_s) for name, shape, at_s in self.gradient_ready_s),
        )


def is_host_limited(hooked: Phases, free_running_step_s: float) -> bool:
    """Return True if a step with hooks took so much longer that the accelerator waited for the host."""
    return hooked.step_s > HOST_LIMITED * free_running_step_s


def between(low: Timeline, high: Timeline, batch_size: int) -> Timeline:
    """Return the timeline of a batch between two measured ones: each time changes in proportion to the batch.

    Raises:
        ValueError: They are not of the same model, precision and device, or have other modules or parameters.
    """
    low, high = low.without_hooks(), high.without_hooks()
    for name in ("model", "sample", "precision", "device", "optimizer", "without_start"):
        if getattr(low, name) != getattr(high, name):
            raise ValueError(f"timelines of {low.batch_size} and {high.batch_size} samples differ in {name}")
    share = (batch_size - low.batch_size) / (high.batch_size - low.batch_size)
    phases = _mix_phases(low.phases_s, high.phases_s, share)
    starts = _mix(_calls(low), _calls(high), share)
    ready = _mix(_gradients(low), _gradients(high), share)
    return dataclasses.replace(
        low,
        batch_size=batch_size,
        phases_s=phases,
        hooked_phases_s=phases,
        free_running_step_s=_at(low.free_running_step_s, high.free_running_step_s, share),
        host_limited=low.host_limited or high.host_limited,
        forward_start_s=tuple((name, kind, at_s) for (name, kind, _), at_s in starts),
        gradient_ready_s=tuple((name, shape, at_s) for (name, shape), at_s in ready),
        provenance={"between": [low.batch_size, high.batch_size], "of": low.provenance},
    )


def _at(low: float, high: float, share: float) -> float:
    return low + share * (high - low)


def _mix_phases(low: Phases, high: Phases, share: float) -> Phases:
    return Phases(**{key: _at(value, getattr(high, key), share) for key, value in vars(low).items()})


def _mix(low: Mapping[Any, float], high: Mapping[Any, float], share: float) -> list[tuple[Any, float]]:
    """Return the times by key, in the order of time.

    Raises:
        ValueError: The keys are others.
    """
    if unlike := low.keys() ^ high.keys():
        raise ValueError(f"timelines of two batches have other layers: {min(map(str, unlike))} is in one of them")
    return sorted(((key, _at(at_s, high[key], share)) for key, at_s in low.items()), key=lambda item: item[1])


def _calls(timeline: Timeline) -> dict[tuple[str, str, int], float]:
    """Return the beginning of each call, by module, kind and number of the call."""
    seen = Counter[str]()
    found: dict[tuple[str, str, int], float] = {}
    for name, kind, at_s in timeline.forward_start_s:
        found[name, kind, seen[name]] = at_s
        seen[name] += 1
    return found


def _gradients(timeline: Timeline) -> dict[tuple[str, tuple[int, ...]], float]:
    return {(name, shape): at_s for name, shape, at_s in timeline.gradient_ready_s}
