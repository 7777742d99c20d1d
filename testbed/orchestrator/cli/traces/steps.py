"""The steps of a trace: where forward, backward and the optimizer begin and end, and whose gradient is ready when."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from testbed.core.errors import InputError
from testbed.core.user_files.text import listed
from testbed.orchestrator.cli.traces.parameters_file import Noted, Parameter
from testbed.orchestrator.cli.traces.trace_file import Op, Trace

Shape = tuple[int, ...]
Signature = tuple[Shape, ...]
"""Shapes of all tensors of a module, sorted."""
_MAX_FAULTS = 20


@dataclass(frozen=True, kw_only=True)
class Gradient:
    """One gradient of a step. Times are seconds of the trace, on the host."""

    shape: Shape
    ready_s: float
    used: int | None
    """Number of the node in forward that used the parameter; None if the trace does not say."""
    begin_s: float | None
    """Begin of the operation that used it."""


@dataclass(frozen=True, kw_only=True)
class Step:
    """One step. Times are seconds of the trace, on the host."""

    forward_s: float
    backward_s: float
    """Begin of the phases."""
    backward_end_s: float
    optimizers: tuple[Op, ...]
    forward: tuple[Op, ...]
    """Operations of forward that no other one contains."""
    gradients: dict[str, Gradient]
    """Gradients by parameter."""


def steps_of(trace: Trace, noted: Noted, where: str) -> list[Step]:
    """Return the steps of a trace, without the first one if there are others.

    A step ends with the optimizer. Steps need not be marked.

    Raises:
        InputError: There is no whole step, or its gradients are not those of the model; a line for each.
    """
    ends = list(_optimizers(trace))
    found, begin_s = list[list[Op]](), float("-inf")
    for group in ends:
        found.append([op for op in trace.ops if begin_s <= op.begin_s < group[0].begin_s])
        begin_s = group[-1].end_s
    if not found or not any(op.is_gradient for ops in found for op in ops):
        raise InputError(
            f"{where}: holds no whole step: neither gradients nor Optimizer.step of torch.optim may lack; trace a few"
            " steps with forward, backward and optimizer, on the processor too (ProfilerActivity.CPU)"
        )
    if len(found) > 1:  # the first one makes what others find, and the trace may begin within it
        found, ends = found[1:], ends[1:]
    return [_step(ops, group, noted, where) for ops, group in zip(found, ends, strict=True)]


def _optimizers(trace: Trace) -> Iterator[tuple[Op, ...]]:
    """Yield optimizers' steps, those without a gradient between them together."""
    for is_optimizer, group in groupby(
        (op for op in trace.ops if op.optimizer or op.is_gradient), key=lambda op: bool(op.optimizer)
    ):
        if is_optimizer:
            yield tuple(group)


def _step(ops: Sequence[Op], optimizers: tuple[Op, ...], noted: Noted, where: str) -> Step:
    backward = [op for op in ops if op.is_backward]
    if not backward:
        raise InputError(f"{where}: a step has no backward; trace whole steps")
    backward_s = backward[0].begin_s
    within = [op for op in ops if op.begin_s < backward_s and not op.optimizer]
    makers, outermost = _makers(within)
    gradients = _named([_gradient(op, before, makers) for op, before in _nodes(ops)], noted, where)
    begins = [one.begin_s for one in gradients.values() if one.begin_s is not None]
    begins += _frozen_begins(outermost, noted)
    if not begins:
        raise InputError(
            f"{where}: no operation of forward is linked to a gradient; trace with record_shapes=True, and forward and"
            " backward in one trace"
        )
    return Step(
        forward_s=min(begins),
        backward_s=backward_s,
        backward_end_s=max(op.end_s for op in backward),
        optimizers=optimizers,
        forward=tuple(op for op in within if op.begin_s >= min(begins)),
        gradients=gradients,
    )


def _makers(within: Sequence[Op]) -> tuple[dict[int, Op], list[Op]]:
    """Return by number of node the outermost operation around the one that made it, and all outermost ones.

    Operations note the number of the next node; so the last one with a number made the node. What has no number does
    not count as outermost: it is a user's mark.
    """
    makers, outermost, around = dict[int, Op](), list[Op](), dict[object, Op]()
    for op in within:
        outer = around.get(op.thread)
        if op.sequence is None:
            continue
        if outer is None or op.begin_s >= outer.end_s:
            outer = around[op.thread] = op
            outermost.append(op)
        makers[op.sequence] = outer
    return makers, outermost


def _nodes(ops: Sequence[Op]) -> Iterator[tuple[Op, Op | None]]:
    """Yield each gradient with the node of backward before it, which completed it."""
    before = dict[object, Op]()
    for op in ops:
        if op.is_gradient:
            yield op, before.get(op.thread)
        elif op.is_backward and not op.is_around_gradient:
            before[op.thread] = op


def _gradient(op: Op, before: Op | None, makers: dict[int, Op]) -> Gradient:
    used = None if before is None else before.sequence
    maker = None if used is None else makers.get(used)
    shape = op.dims[0] if op.dims and isinstance(op.dims[0], tuple) else ()
    return Gradient(
        shape=shape,
        ready_s=op.end_s,
        used=used if maker is not None else None,
        begin_s=None if maker is None else maker.begin_s,
    )


def _named(found: Sequence[Gradient], noted: Noted, where: str) -> dict[str, Gradient]:
    """Return the gradients by parameter.

    Those of one operation that have the shapes of a module are that module's, modules of the same shapes in module
    order. Others go by shape, in the order in which forward used them; where forward is not known, in the reverse
    order of backward.

    Raises:
        InputError: The step has other gradients than the model; a line for each shape, with its parameters.
    """
    theirs, ours = defaultdict[Shape, list[Gradient]](list), defaultdict[Shape, list[Parameter]](list)
    for gradient in found:
        theirs[gradient.shape].append(gradient)
    for parameter in noted.learning:
        ours[parameter.shape].append(parameter)
    if faults := list(_count_faults(theirs, ours, len(noted.learning))):
        raise InputError(*listed([f"{where}: {fault}" for fault in faults], where, _MAX_FAULTS))
    named = _by_module(found, noted)
    taken = set(map(id, named.values()))
    for shape, parameters in ours.items():
        left = [gradient for gradient in theirs[shape] if id(gradient) not in taken]
        free = [parameter.name for parameter in parameters if parameter.name not in named]
        named.update(zip(free, _in_order(left), strict=True))
    return named


def _in_order(gradients: Sequence[Gradient]) -> list[Gradient]:
    """Return gradients in the order in which forward used their parameters."""
    if all(gradient.used is not None for gradient in gradients):
        return sorted(gradients, key=lambda one: (one.used or 0, one.ready_s))
    return sorted(gradients, key=lambda one: -one.ready_s)


def _by_module(found: Sequence[Gradient], noted: Noted) -> dict[str, Gradient]:
    """Return the gradients of modules whose shapes are those of as many operations as there are such modules."""
    uses, modules = defaultdict[float, list[Gradient]](list), defaultdict[str, list[Parameter]](list)
    for gradient in found:
        if gradient.begin_s is not None:
            uses[gradient.begin_s].append(gradient)
    for parameter in noted.learning:
        modules[parameter.module].append(parameter)
    groups = defaultdict[Signature, list[list[Gradient]]](list)
    owners = defaultdict[Signature, list[list[Parameter]]](list)
    for _, used in sorted(uses.items()):
        groups[tuple(sorted(gradient.shape for gradient in used))].append(used)
    for own in modules.values():
        owners[tuple(sorted(parameter.shape for parameter in own))].append(own)
    named = dict[str, Gradient]()
    for signature, group in groups.items():
        if len(group) == len(owners.get(signature, ())):
            for own, used in zip(owners[signature], group, strict=True):
                for shape in set(signature):
                    names = [parameter.name for parameter in own if parameter.shape == shape]
                    named.update(zip(names, _in_order([one for one in used if one.shape == shape]), strict=True))
    return named


def _count_faults(theirs: dict[Shape, list[Gradient]], ours: dict[Shape, list[Parameter]], count: int) -> Iterator[str]:
    total = sum(map(len, theirs.values()))
    if total > count and all(len(theirs.get(shape, ())) * count == len(own) * total for shape, own in ours.items()):
        yield (
            f"a step has {total} gradients of {count} parameters: it adds gradients of {total // count} batches; trace"
            " steps of one batch each"
        )
        return
    for shape in sorted({*theirs, *ours}):
        own, seen = ours.get(shape, []), theirs.get(shape, [])
        if len(own) == len(seen):
            continue
        text = " x ".join(map(str, shape)) or "a number"
        names = ", ".join(parameter.name for parameter in own[:5]) or "no parameter"
        yield (
            f"{names}: a step has {len(seen)} gradients of shape {text}, and the model {len(own)}; note parameters of"
            " the traced model, after a backward, so that unused ones are known"
        )


def _frozen_begins(outermost: Sequence[Op], noted: Noted) -> Iterator[float]:
    """Yield the begin of the first operation that takes all tensors of a module which does not learn."""
    modules = defaultdict[str, list[Shape]](list)
    for parameter in noted.parameters:
        if not parameter.learns:
            modules[parameter.module].append(parameter.shape)
    for shapes in modules.values():
        if max(map(len, shapes)) >= 2:  # a vector's shape is that of too many tensors
            yield from (op.begin_s for op in outermost if all(shape in op.dims for shape in shapes))
