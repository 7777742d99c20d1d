"""A plan for a run about to begin: rank 0 measures the model, all ranks probe the links, rank 0 chooses, all agree."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from testbed.core.errors import RunError
from testbed.core.parallelism.comparison import choose, plan_from_json, predicted
from testbed.core.parallelism.model import ModelProfile
from testbed.core.parallelism.plan import Plan
from testbed.core.parallelism.problem import RING, Problem
from testbed.core.parallelism.search import Options, Rejected
from testbed.core.record.events.base import StepEvent
from testbed.core.record.events.pipeline import ChosenPlan
from testbed.worker.communication.communicator import Communicator
from testbed.worker.methods.planner.link_probe import Probed, probe


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """How a plan is chosen, and for what."""

    way: str
    """Of `testbed.core.parallelism.comparison.WAYS`."""
    place: int = 1
    """Of those that rank, which plan: 1 is the best."""
    global_batch: int
    """Samples of a step."""
    options: Options
    memory_bytes: int | None = None
    """Of each device; None: without limit."""
    all_reduce: str = RING


@dataclass(frozen=True)
class Decision:
    """The same on all ranks."""

    plan: Plan
    events: tuple[StepEvent, ...]
    """Events for the record."""


def decide(
    comm: Communicator,
    regions: tuple[str, ...],
    wanted: Wanted,
    measured: Callable[[], ModelProfile],
    dilation: float = 1.0,
) -> Decision:
    """All ranks call it at once, before the first step.

    Args:
        regions: of each rank.
        measured: is called on rank 0 alone.

    Raises:
        RunError: no plan can be had so; on all ranks.
    """
    probed = probe(comm, regions, dilation)
    told: dict[str, Any] = {}
    if comm.rank == 0:
        told = _chosen(wanted, measured(), probed)
    told = _shared(comm, told)
    if "reasons" in told:
        raise RunError(f"plan={wanted.way}: {told['what']}", *told["reasons"])
    chosen = ChosenPlan(way=wanted.way, place=wanted.place, **told)
    return Decision(plan_from_json(told), (probed.event(), chosen))


def _chosen(wanted: Wanted, model: ModelProfile, probed: Probed) -> dict[str, Any]:
    links = probed.links
    problem = Problem(
        layers=model.on(links),
        links=links,
        global_batch=wanted.global_batch,
        memory_bytes=None if wanted.memory_bytes is None else (wanted.memory_bytes,) * links.ranks,
        optimizer_states=model.optimizer_states,
        all_reduce=wanted.all_reduce,
    )
    found = choose(wanted.way, problem, wanted.options, wanted.place)
    if isinstance(found, Rejected):
        return {"what": found.what, "reasons": list(found.reasons)}
    return predicted(found.plan, problem).to_json()


def _shared(comm: Communicator, told: dict[str, Any]) -> dict[str, Any]:
    """What rank 0 tells; control traffic."""
    text = json.dumps(told, allow_nan=False).encode()
    size = torch.tensor([len(text)], dtype=torch.int64)
    comm.broadcast(size, control=True).wait()
    message = torch.zeros(int(size.item()), dtype=torch.uint8)
    if comm.rank == 0:
        message.copy_(torch.frombuffer(bytearray(text), dtype=torch.uint8))
    comm.broadcast(message, control=True).wait()
    found: dict[str, Any] = json.loads(bytes(message.tolist()))
    return found
