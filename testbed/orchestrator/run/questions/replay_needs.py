"""What a replay takes of the machine and of the clock, before anything is started: refused with the figure."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from testbed.core.costs.collective import sent_bytes
from testbed.core.device.profile import Profile
from testbed.core.spec.run_spec import RunSpec
from testbed.core.units import format_size, format_time
from testbed.orchestrator.config.scale import REPLAY
from testbed.orchestrator.machine.checks import available_memory_bytes

WORKER_BYTES = 30_000_000
"""Private memory of a forked worker without its model: 43.8 MB were measured with `digits` in training, of which 13.1
are parameters, gradients and momenta."""
EXCHANGED_MODELS = 4
"""Number of models that a worker holds where models are exchanged; servers hold more.

Its own, the one agreed on, an outer optimizer's momenta, and what is on its way."""
POOL_BYTES = 64 * 2**20
"""Shared by all workers of a machine."""


@dataclass(frozen=True, kw_only=True)
class ReplayNeeds:
    """A lower bound: payloads, and what a codec takes while it works, come on top."""

    model: str
    workers: int
    elements: int
    """Of all gradients of one worker, as they are sent: after scaling."""
    feedback: bool
    """Whether the compressor keeps what it did not send."""
    owns_parameters: bool
    """True if its parameters are sent, and so have memory of their own."""
    sent_bytes: float
    """What one worker sends in a step, by core.costs or the compressor's own count."""
    steps: int

    @property
    def tensor_bytes(self) -> int:
        """Bytes of one worker: buckets, residuals, and what exchanging models keeps."""
        return 4 * self.elements * (1 + self.feedback + EXCHANGED_MODELS * self.owns_parameters)

    @property
    def memory_bytes(self) -> int:
        """Of all workers of the machine."""
        return POOL_BYTES + self.workers * (WORKER_BYTES + self.tensor_bytes)

    def exchange_s(self, rate_bit_s: float) -> float:
        """Least emulated seconds of a step's exchange where every worker's bytes pass a link of this rate."""
        return 8 * self.sent_bytes / rate_bit_s

    def wall_s(self, rate_bit_s: float, *, compute_s: float, dilation: float) -> float:
        """Of all steps, at least: all but the first layer's exchange may overlap with computing."""
        return self.steps * max(compute_s, self.exchange_s(rate_bit_s)) * dilation

    def memory_faults(self, memory_bytes: int) -> Iterator[str]:
        """
        Args:
            memory_bytes: what the machine has to spare for the run.
        """
        if self.memory_bytes <= memory_bytes:
            return
        spare = memory_bytes - POOL_BYTES
        fitting = max(0, spare // (WORKER_BYTES + self.tensor_bytes))
        room = spare - self.workers * WORKER_BYTES
        cures = [f"workers={fitting}"] if fitting else []
        if room > 0:
            cures.append(f"scale={_rounded_up(self.workers * self.tensor_bytes / room)}")
        would = f"{' or '.join(cures)} would do" if cures else "too little for any worker"
        yield (
            f"{self} workers={self.workers} needs {format_size(self.memory_bytes)} of memory,"
            f" this machine has {format_size(memory_bytes)}: {would}"
        )

    def time_faults(self, rate_bit_s: float, *, compute_s: float, dilation: float, most_wall_s: float) -> Iterator[str]:
        """
        Args:
            rate_bit_s: of the slowest link that every worker's bytes pass; unscaled where `sent_bytes` are.
            compute_s: emulated seconds of a step without communication.
            most_wall_s: how long the run may take.
        """
        wall_s = self.wall_s(rate_bit_s, compute_s=compute_s, dilation=dilation)
        if wall_s > most_wall_s:
            fitting = math.floor(self.steps * most_wall_s / wall_s)
            cure = f"steps={fitting} would do" if fitting else "not even one step fits"
            yield (
                f"{self} steps={self.steps} dilation={dilation:g} takes at least {_spoken(wall_s)},"
                f" more than the {_spoken(most_wall_s)} asked for: {cure},"
                " or a compressor that sends less, or a faster link"
            )

    def __str__(self) -> str:
        return f"workload=replay model={self.model}"


def _rounded_up(scale: float) -> str:
    """To two digits."""
    digit = 10 ** (math.floor(math.log10(scale)) - 1)
    return f"{math.ceil(scale / digit) * digit:g}"


def _spoken(seconds: float) -> str:
    return f"{seconds / 3600:.3g} h" if seconds >= 3600 else format_time(seconds)


# Whether a replay fits this machine's memory, and its time, refused with the figure before anything is built.


def memory_faults(spec: RunSpec, answer: dict[str, Any]) -> Iterator[str]:
    """
    Args:
        answer: of the plug-in check.
    """
    if not answer["computes"]:
        asked = {"feedback": answer["uses_feedback"], "owns_parameters": answer["exchanges_models"]}
        needs = _needs(spec, answer["parameters"], **asked)
        yield from needs.memory_faults(available_memory_bytes())


def time_faults(spec: RunSpec, cpu: Profile, device: Profile) -> Iterator[str]:
    """
    Args:
        spec: with its dilation.
    """
    if spec.workload.target != REPLAY:
        return
    # every way of carrying them sends as much
    sent = sum(one.share * sent_bytes("gloo", one.kind, one.size_bytes, spec.topology) for one in cpu.collectives)
    elements = sum(layer.parameters for layer in cpu.layers)
    needs = _needs(spec, elements, sent=sent / cpu.cycle_steps / spec.workers)
    _, beta_s_byte = spec.topology.slowest_hop
    if beta_s_byte:
        yield from needs.time_faults(
            8 / beta_s_byte,
            compute_s=device.step_s,
            dilation=spec.dilation,
            most_wall_s=spec.max_wall_s or math.inf,
        )


def _needs(
    spec: RunSpec, elements: int, *, feedback: bool = False, owns_parameters: bool = False, sent: float = 0.0
) -> ReplayNeeds:
    return ReplayNeeds(
        model=str(spec.workload.params.get("model")),
        workers=spec.workers,
        elements=elements,
        feedback=feedback,
        owns_parameters=owns_parameters,
        sent_bytes=sent,
        steps=spec.steps or 1,
    )
