"""Whether a replay fits this machine's memory, and its time, refused with the figure before anything is built."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from testbed.core.collective_costs import sent_bytes
from testbed.core.profile import Profile
from testbed.core.replay_needs import ReplayNeeds
from testbed.core.spec import RunSpec
from testbed.orchestrator.machine_checks import available_memory_bytes
from testbed.orchestrator.scale import REPLAY


def memory_faults(spec: RunSpec, answer: dict[str, Any]) -> Iterator[str]:
    """
    Args:
        answer: of the plug-in check.
    """
    if not answer["computes"]:
        needs = _needs(spec, answer["parameters"], feedback=answer["uses_feedback"])
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


def _needs(spec: RunSpec, elements: int, *, feedback: bool = False, sent: float = 0.0) -> ReplayNeeds:
    return ReplayNeeds(
        model=str(spec.workload.params.get("model")),
        workers=spec.workers,
        elements=elements,
        feedback=feedback,
        sent_bytes=sent,
        steps=spec.steps or 1,
    )
