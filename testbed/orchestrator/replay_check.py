"""Whether a replay fits this machine's memory, and its time, refused with the figure before anything is built."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from testbed.core import costs
from testbed.core.profile import Profile
from testbed.core.replay_needs import ReplayNeeds
from testbed.core.spec import RunSpec
from testbed.orchestrator.scale import REPLAY

_SENT = {
    "all_reduce": costs.all_reduce_sent_bytes,
    "all_gather": costs.all_gather_sent_bytes,
    "all_to_all": costs.all_to_all_sent_bytes,
}


def memory_faults(spec: RunSpec, answer: dict[str, Any]) -> Iterator[str]:
    """
    Args:
        answer: of the plug-in check.
    """
    if not answer["computes"]:
        dense = 4 * answer["parameters"]
        yield from _needs(spec, answer["parameters"], answer["uses_feedback"], payload=0, sent=dense).memory_faults(
            available_bytes()
        )


def time_faults(spec: RunSpec, cpu: Profile, device: Profile) -> Iterator[str]:
    """
    Args:
        spec: with its dilation.
    """
    if spec.workload.target != REPLAY:
        return
    sent = sum(_SENT[one.kind](one.size_bytes, spec.workers) for one in cpu.collectives)
    elements = sum(layer.parameters for layer in cpu.layers)
    needs = _needs(spec, elements, feedback=False, payload=0, sent=sent)
    _, beta_s_byte = spec.topology.slowest_hop
    if beta_s_byte:
        yield from needs.time_faults(
            8 / beta_s_byte,
            compute_s=device.step_s,
            dilation=spec.dilation,
            most_wall_s=spec.max_wall_s or math.inf,
        )


def available_bytes() -> int:
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _needs(spec: RunSpec, elements: int, feedback: bool, *, payload: int, sent: float) -> ReplayNeeds:
    return ReplayNeeds(
        model=str(spec.workload.params.get("model")),
        workers=spec.workers,
        elements=elements,
        feedback=feedback,
        payload_bytes=payload,
        sent_bytes=sent,
        steps=spec.steps or 1,
    )
