"""The timeline of a model's step, measured by hooks on a core of this machine or on an accelerator."""

from __future__ import annotations

import contextlib
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from testbed.core.device.timelines.timeline import Phases, Timeline, is_host_limited
from testbed.core.errors import InputError
from testbed.core.models.catalogue import Model
from testbed.worker.profile.library_models import LibraryModel, library_model, optimizer_of
from testbed.worker.profile.machine import processor, this_machine

_WARM_UP = {"cpu": 1, "cuda": 4}
_STEPS = {"cpu": 5, "cuda": 10}
FULL = "fp32"
PRECISIONS = (FULL, "tf32", "bf16")
Moment = Any
"""Seconds of the thread, or an event of the accelerator."""


@dataclass
class _Marks:
    """Moments of one step: its phases' bounds, the begin of calls, and when gradients are ready."""

    device: torch.device
    bounds: list[Moment] = field(default_factory=list)
    calls: list[tuple[str, Moment]] = field(default_factory=list)
    gradients: list[tuple[str, Moment]] = field(default_factory=list)

    def now(self) -> Moment:
        if self.device.type != "cuda":
            return time.thread_time()  # what else the machine does is not the model's
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def s(self, since: Moment, until: Moment) -> float:
        return float(since.elapsed_time(until) * 1e-3 if self.device.type == "cuda" else until - since)

    @property
    def phases(self) -> list[float]:
        return [self.s(since, until) for since, until in zip(self.bounds, self.bounds[1:], strict=False)]


def measure_timeline(table: Model, batch_size: int, device: torch.device, precision: str) -> Timeline:
    """Return the timeline of a model of torchvision, timm or transformers, medians of several steps.

    On the processor one thread computes, and its own seconds count.

    Raises:
        InputError: The model or the precision is not possible here.
    """
    if precision not in PRECISIONS or (precision == "tf32" and device.type != "cuda"):
        raise InputError(
            f"--precision {precision}: must be one of {', '.join(PRECISIONS)}, and tf32 needs an accelerator"
        )
    if device.type == "cuda":
        torch.cuda.set_device(device)  # events are recorded on the current one
    torch.set_num_threads(1)
    torch.manual_seed(0)
    tf32 = precision == "tf32"
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = tf32
    found = library_model(table, batch_size, device)
    step = _step_of(found, device, precision)
    for _ in range(_WARM_UP[device.type]):
        step(_Marks(device))
    count = _STEPS[device.type]
    plain = _repeated(step, device, count)
    free_s = _free_running_s(step, device, count)
    marks: list[_Marks] = []
    with _hooks(found.model, marks):
        hooked = _repeated(step, device, count + 1, marks)[1:]
    return _timeline(table, found, (plain, hooked), free_s, batch_size, device, precision)


def _step_of(found: LibraryModel, device: torch.device, precision: str) -> Callable[[_Marks], None]:
    optimizer = optimizer_of(found)

    def step(marks: _Marks) -> None:
        optimizer.zero_grad(set_to_none=True)
        marks.bounds.append(marks.now())
        with torch.autocast(device.type, dtype=torch.bfloat16) if precision == "bf16" else contextlib.nullcontext():
            loss = found.loss(found.model, found.batch)
        marks.bounds.append(marks.now())
        loss.backward()
        marks.bounds.append(marks.now())
        optimizer.step()
        marks.bounds.append(marks.now())

    return step


def _repeated(
    step: Callable[[_Marks], None], device: torch.device, count: int, current: list[_Marks] | None = None
) -> list[_Marks]:
    """Return the marks of some steps, each waited for; `current` holds those of the step under way."""
    found: list[_Marks] = []
    for _ in range(count):
        found.append(_Marks(device))
        if current is not None:
            current[:] = found[-1:]
        step(found[-1])
        if device.type == "cuda":
            torch.cuda.synchronize(device)
    return found


def _free_running_s(step: Callable[[_Marks], None], device: torch.device, count: int) -> float:
    marks = _Marks(device)
    begin = marks.now()
    for _ in range(count):
        step(_Marks(device))
    end = marks.now()
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return marks.s(begin, end) / count


@contextlib.contextmanager
def _hooks(model: nn.Module, current: list[_Marks]) -> Iterator[None]:
    """Mark the calls of modules with parameters of their own or without modules inside, and gradients."""

    def called(name: str) -> None:
        current[0].calls.append((name, current[0].now()))

    def ready(name: str) -> None:
        current[0].gradients.append((name, current[0].now()))

    own = {name.rpartition(".")[0] for name, _ in model.named_parameters()}
    seen = [(name, one) for name, one in model.named_modules() if name and (name in own or not list(one.children()))]
    handles = [m.register_forward_pre_hook(lambda *_, name=name: called(name)) for name, m in seen]
    handles += [
        parameter.register_post_accumulate_grad_hook(lambda _, name=name: ready(name))
        for name, parameter in model.named_parameters()
        if parameter.requires_grad
    ]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def _timeline(
    table: Model,
    found: LibraryModel,
    steps: tuple[list[_Marks], list[_Marks]],
    free_s: float,
    batch_size: int,
    device: torch.device,
    precision: str,
) -> Timeline:
    plain, hooked = (
        Phases(**dict(zip(("forward", "backward", "optimizer"), _phases(one), strict=True))) for one in steps
    )
    first, marked = steps[1][0], steps[1]
    calls = [
        (name, statistics.median(one.s(one.bounds[0], one.calls[index][1]) for one in marked))
        for index, (name, _) in enumerate(first.calls)
    ]
    ready = {
        name: statistics.median(one.s(one.bounds[1], dict(one.gradients)[name]) for one in marked)
        for name, _ in first.gradients
    }
    shapes = {name: tuple(parameter.shape) for name, parameter in found.model.named_parameters()}
    kinds = {name: type(module).__name__ for name, module in found.model.named_modules()}
    begun = {name for name, _ in calls}
    owners = dict.fromkeys(name.rpartition(".")[0] for name in ready)
    machine = this_machine(device)
    return Timeline(
        model=table.name,
        sample=table.sample,
        batch_size=batch_size,
        precision=precision,
        device=str(machine["measured_on"]) if device.type == "cuda" else processor(),
        software={"torch": torch.__version__, found.library: found.version},
        optimizer=found.optimizer,
        phases_s=plain,
        hooked_phases_s=hooked,
        free_running_step_s=free_s,
        host_limited=is_host_limited(hooked, free_s),
        forward_start_s=tuple(
            (name, kinds[name], min(at_s, hooked.forward)) for name, at_s in sorted(calls, key=lambda call: call[1])
        ),
        without_start=tuple(owner for owner in owners if owner not in begun),
        gradient_ready_s=tuple(
            (name, shapes[name], min(at_s, hooked.backward)) for name, at_s in sorted(ready.items(), key=lambda r: r[1])
        ),
        provenance={"made_by": "longhaul profile", **{key: str(value) for key, value in machine.items()}},
    )


def _phases(marks: list[_Marks]) -> list[float]:
    return [statistics.median(one) for one in zip(*(step.phases for step in marks), strict=True)]
