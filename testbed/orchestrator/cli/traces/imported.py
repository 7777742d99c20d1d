"""The timeline and the table of a model, from a trace of its training."""

from __future__ import annotations

import hashlib
import json
import statistics
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from testbed.core.device.timelines.timeline import Phases, Timeline, is_host_limited
from testbed.core.device.timelines.timeline_file import timeline_of
from testbed.core.errors import InputError
from testbed.core.models.model import Layer, Model
from testbed.orchestrator.cli.traces.flop import counted
from testbed.orchestrator.cli.traces.parameters_file import Noted, read_noted
from testbed.orchestrator.cli.traces.steps import Step, steps_of
from testbed.orchestrator.cli.traces.trace_file import Trace, read_trace

_IDLE = 0.1
"""Share of traced steps without a kernel from which on a timeline says that the host limited it."""


@dataclass(frozen=True, kw_only=True)
class Imported:
    """Result of reading a trace."""

    timeline: Timeline
    model: Model
    notes: tuple[str, ...]
    """Phrases about what it does not hold."""


@dataclass(frozen=True, kw_only=True)
class _Times:
    """One step, in seconds: forward's since it began, gradients' since backward began."""

    phases: Phases
    starts: dict[str, float]
    """Begin of modules."""
    ready: dict[str, float]
    """Readiness of gradients, by parameter."""
    end_s: float
    """End of the step, in seconds of the trace."""
    busy_share: float


def imported(trace_file: Path, parameters_file: Path, step_s: float | None) -> Imported:
    """Return the timeline of a traced training, with the table of its model.

    Args:
        step_s: Seconds of a step without the profiler, to which all times are brought; None: as traced.

    Raises:
        InputError: A file cannot be read, or they are not of one training; a line for each fault, with the layer.
    """
    noted, trace = read_noted(parameters_file), read_trace(trace_file)
    steps = steps_of(trace, noted, str(trace_file))
    times = [_times(trace, step) for step in steps]
    idle = 1 - statistics.mean(one.busy_share for one in times)
    unknowns = tuple(_unknowns(noted, idle, step_s))
    made = {
        "device": trace.accelerator or noted.device,
        "optimizer": " and ".join(dict.fromkeys(op.optimizer for op in steps[0].optimizers)),
        "provenance": {
            "made_by": "longhaul profile --trace",
            "trace_sha256": hashlib.sha256(trace_file.read_bytes()).hexdigest(),
            "steps": len(steps),
            "unknowns": list(unknowns),
        },
    }
    found = _timeline(noted, times, step_s, made)
    timeline_of(json.loads(json.dumps(found.to_json())), str(trace_file))  # what we write, we can read
    model = _model(noted, _median_of([one.starts for one in times]), steps[0], str(trace_file))
    return Imported(timeline=found, model=model, notes=unknowns)


def _timeline(noted: Noted, times: Sequence[_Times], step_s: float | None, made: dict[str, Any]) -> Timeline:
    """Return medians over the steps.

    Args:
        made: Further fields of the timeline.
    """
    hooked = Phases(
        **{phase: statistics.median(getattr(one.phases, phase) for one in times) for phase in Phases.__annotations__}
    )
    starts, ready = _median_of([one.starts for one in times]), _median_of([one.ready for one in times])
    free_s = _free_running_s(times, hooked) if step_s is None else step_s
    shapes = {parameter.name: parameter.shape for parameter in noted.learning}
    owners = dict.fromkeys(parameter.module for parameter in noted.learning)
    return Timeline(
        model=noted.model,
        sample=noted.sample,
        batch_size=noted.batch_size,
        precision=noted.precision,
        software={"torch": noted.torch},
        phases_s=hooked if step_s is None else hooked.times(step_s / hooked.step_s),
        hooked_phases_s=hooked,
        free_running_step_s=free_s,
        host_limited=is_host_limited(hooked, free_s),
        forward_start_s=tuple(
            (module, noted.kinds.get(module, "module"), min(starts[module], hooked.forward))
            for module in sorted(starts, key=lambda module: starts[module])
        ),
        without_start=tuple(owner for owner in owners if owner not in starts),
        gradient_ready_s=tuple(
            (name, shapes[name], min(ready[name], hooked.backward))
            for name in sorted(ready, key=lambda name: ready[name])
        ),
        **made,
    )


def _times(trace: Trace, step: Step) -> _Times:
    """Return the times of a step as events show them that the host records: of the accelerator, if there is one."""
    forward_s, backward_s = trace.reached_s(step.forward_s), trace.reached_s(step.backward_s)
    optimizer_s = sum(trace.reached_s(op.end_s) - trace.reached_s(op.begin_s) for op in step.optimizers)
    end_s = trace.reached_s(step.optimizers[-1].end_s)
    starts = defaultdict[str, float](lambda: float("inf"))
    for name, gradient in step.gradients.items():
        if gradient.begin_s is not None and (module := name.rpartition(".")[0]):
            starts[module] = min(starts[module], trace.reached_s(gradient.begin_s) - forward_s)
    return _Times(
        phases=Phases(
            forward=backward_s - forward_s,
            backward=trace.reached_s(step.backward_end_s) - backward_s,
            optimizer=optimizer_s,
        ),
        starts=dict(starts),
        ready={name: trace.reached_s(one.ready_s) - backward_s for name, one in step.gradients.items()},
        end_s=end_s,
        busy_share=trace.busy_s(forward_s, end_s) / (end_s - forward_s) if trace.kernels else 1.0,
    )


def _median_of(steps: Sequence[dict[str, float]]) -> dict[str, float]:
    """Return the medians of what all steps have."""
    return {key: statistics.median(step[key] for step in steps) for key in steps[0] if all(key in one for one in steps)}


def _free_running_s(times: Sequence[_Times], phases: Phases) -> float:
    """Return the seconds from one step's end to the next one's; of a single step the sum of its phases."""
    between = [after.end_s - before.end_s for before, after in pairwise(times)]
    return max(statistics.median(between), phases.step_s) if between else phases.step_s


def _unknowns(noted: Noted, idle: float, step_s: float | None) -> Iterator[str]:
    if step_s is None:
        yield "how long a step lasts without torch.profiler, which lengthens it (the length was not given: --step-s)"
    if idle > _IDLE:
        yield (
            f"when layers begin and gradients are ready if the host does not limit the device (no kernel ran in"
            f" {idle:.0%} of the traced steps)"
        )
    if unused := noted.unused:
        yield (
            f"what is sent for {len(unused)} parameters without gradients, which are left out ({unused[0].name} is the"
            " first)"
        )


def _model(noted: Noted, starts: dict[str, float], step: Step, where: str) -> Model:
    """Return the table: modules in the order in which forward began them, one whose begin is not known after the module
    before it; each has its own parameters.

    Raises:
        InputError: No FLOPs can be counted.
    """
    shapes, begins, before_s = defaultdict[str, list[tuple[int, ...]]](list), dict[str, float](), 0.0
    for parameter in noted.learning:
        shapes[parameter.module].append(parameter.shape)
        before_s = begins[parameter.module] = starts.get(parameter.module, before_s)
    order = sorted(begins, key=lambda module: begins[module])
    flop = dict.fromkeys(order, 0.0)
    begun = _begun(step)
    for op, count in counted(step.forward):
        owner = next((module for at_s, module in reversed(begun) if at_s <= op.begin_s), order[0])
        flop[owner] += count / noted.batch_size
    if not any(flop.values()):
        raise InputError(f"{where}: no FLOPs can be counted: no matrix product or convolution of forward has shapes")
    root = "model" if "model" not in shapes else "the model itself"
    layers = tuple(Layer(module or root, tuple(shapes[module]), flop[module]) for module in order)
    parameters = sum(layer.numel for layer in layers)
    source = f"a trace of torch {noted.torch}; FLOPs counted from its shapes"
    return Model(noted.model, layers, parameters, None, noted.sample, source)


def _begun(step: Step) -> list[tuple[float, str]]:
    """Return (begin, module) of one step on the host, in order; FLOPs are those of the module that began last."""
    begins = dict[str, float]()
    for name, gradient in step.gradients.items():
        if gradient.begin_s is not None:
            module = name.rpartition(".")[0]
            begins[module] = min(begins.get(module, gradient.begin_s), gradient.begin_s)
    return sorted((at_s, module) for module, at_s in begins.items())
