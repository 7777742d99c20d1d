"""What can be asked of a run on machines that are there; what only an emulated network can do is refused."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from testbed.core.costs.fusion import untimed_faults
from testbed.core.errors import InputError
from testbed.core.spec.run_spec import PROCESSOR, RunSpec
from testbed.orchestrator.config.config import resolve
from testbed.orchestrator.run.questions.plugins import check_parts

_DEFAULTS = {field.name: field.default for field in dataclasses.fields(RunSpec)}


def measured_spec(overrides: Sequence[str], workers: int, runs_root: Path, *, accelerated: bool = False) -> RunSpec:
    """The spec that an emulated run of the same words has, at dilation 1.

    Args:
        workers: ranks that `torchrun` has started; taken where the words name none.
        accelerated: they compute on accelerators.

    Raises:
        InputError: all faults together.
    """
    named = any(word.lstrip("+").startswith("workers=") for word in overrides)
    resolved = resolve([*overrides, *([] if named else [f"workers={workers}"])], emulated=False, runs_root=runs_root)
    faults = [*resolved.faults]
    if resolved.stand_in is not None:
        faults += refused(resolved.stand_in, workers)
    found: dict[str, Any] = {}
    if resolved.stand_in is not None and resolved.stand_in.program == "training":
        try:
            answer = check_parts(resolved.stand_in, accelerated=accelerated)
            found = {key: answer.get(key) for key in ("data_hash", "data_licence", "start_hash")}
        except InputError as error:
            faults += error.faults
    if faults:
        raise InputError(*dict.fromkeys(faults))
    return dataclasses.replace(resolved.spec, **found, dilation=1.0)


def refused(spec: RunSpec, workers: int) -> Iterator[str]:
    if spec.program != "training":
        yield f"workload={spec.workload.name}: give your own script to torchrun itself; nothing of a node is here"
    if spec.workers != workers:
        yield f"workers={spec.workers}: torchrun has started {workers} ranks; leave it out, or start as many"
    if spec.dilation != 1 and not spec.auto_dilation:
        yield f"dilation={spec.dilation:g}: real machines keep real time; leave it out"
    emulated = {
        "events": bool(spec.events),
        "background": bool(spec.background),
        "capture": spec.capture != "none",
        "memory_limit": bool(spec.memory_limit),
        **{key: getattr(spec, key) != _DEFAULTS[key] for key in ("tcp", "shaper", "runtime")},
    }
    for key, asked in emulated.items():
        if asked:
            yield f"{key}: of emulated networks and their nodes; nothing is emulated under torchrun"
    if spec.accelerator != PROCESSOR:
        yield f"accelerator={spec.accelerator}: of emulated nodes; give each rank --accelerator cuda"
    yield from untimed_faults(spec)
    if spec.keeps_model or spec.keeps_server:
        yield f"checkpoint={spec.checkpoint}: of emulated runs, whose nodes share a folder; leave it out"
