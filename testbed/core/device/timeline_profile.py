"""The profile of a training on the device of a timeline, and of what a transform makes of its model.

Tensors are matched by shape and order, and every element is counted.
"""

from __future__ import annotations

import dataclasses
import difflib
import json
from collections import Counter, defaultdict, deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from testbed.core.device.profile import MEASURED, SCALED, LayerTimes, Profile, TensorTimes, WorkTimes
from testbed.core.device.timelines.timeline import Timeline
from testbed.core.errors import InputError
from testbed.core.user_files.text import listed

Shape = tuple[int, ...]
_MAX_FAULTS = 20


@dataclass(frozen=True)
class _Slot:
    """One tensor of the model."""

    layer: int
    """Index of its layer, in the order of forward."""
    tensor: TensorTimes


def on_timeline(timeline: Timeline, cpu: Profile, where: str, unknowns: Sequence[str] = ()) -> Profile:
    """Return the profile of a training on the device of a timeline, still with the codec of `cpu`.

    Args:
        where: Beginning of each fault.
        unknowns: What is not known of it beyond what follows from the timeline.

    Raises:
        InputError: The timeline is of another batch or model.
    """
    if timeline.batch_size != cpu.batch_size:
        raise InputError(f"{where}: its timeline is of batches of {timeline.batch_size} samples, not {cpu.batch_size}")
    is_scaled = "scaled_from" in timeline.provenance
    return dataclasses.replace(
        cpu,
        layers=layers_of(timeline, cpu.layers, where),
        forward_s=timeline.phases_s.forward,
        backward_s=timeline.phases_s.backward,
        optimizer_s=timeline.phases_s.optimizer,
        other_s=0.0,
        passes=((timeline.batch_size, timeline.phases_s.forward + timeline.phases_s.backward),),
        work=(),
        switched=None,
        assumed=False,
        basis=SCALED if is_scaled else MEASURED,
        unknowns=(*unknowns, *_unknowns(timeline)),
        provenance={
            "measured_on": timeline.device,
            **{key: getattr(timeline, key) for key in ("model", "precision", "optimizer", "software", "host_limited")},
            "free_running_step_s": timeline.free_running_step_s,
            "timeline": timeline.provenance,
            "codec": cpu.provenance,
        },
    )


def micro_batches(cpu: Profile, known: Sequence[int]) -> Iterator[str]:
    """Yield what is not known of parts of a batch, where a pipeline takes such."""
    target, _, text = str(cpu.provenance.get("strategy", "")).partition(" ")
    if not target.endswith(".Hybrid"):
        return
    asked = json.loads(text)
    samples = None if asked.get("plan") else asked.get("micro_batch") or cpu.batch_size
    if samples not in known:
        rule = "smaller ones as the smallest of these, others in proportion" if len(known) > 1 else "in proportion"
        yield f"how long micro-batches of other than {', '.join(map(str, sorted(known)))} samples take ({rule})"


def _unknowns(timeline: Timeline) -> Iterator[str]:
    if isinstance(told := timeline.provenance.get("unknowns"), list):
        yield from map(str, told)
    if between := timeline.provenance.get("between"):
        yield f"times of batches of {timeline.batch_size} samples (interpolated between {between[0]} and {between[1]})"
    if timeline.host_limited:
        yield (
            "when layers begin and gradients are ready if the host does not limit the device (measured while it did,"
            " and brought to the length of the phases)"
        )


def layers_of(timeline: Timeline, layers: Sequence[LayerTimes], where: str) -> tuple[LayerTimes, ...]:
    """Return the layers with the times of a timeline.

    A gradient of the model takes the time of the timeline's gradient that has its shape and its place among those of
    that shape, in the order of backward. Where the model's order is another one than the timeline's, a gradient is
    ready when those before it are: never too early. A layer begins with the first of the modules that hold its
    parameters. From there until the next layer whose beginning is known, layers share the time by their FLOPs.

    Args:
        layers: Layers of the model in the order of forward, with their tensors.
        where: Beginning of each fault.

    Raises:
        InputError: The model has other tensors than the timeline; a line for each, with its layer.
    """
    if unknown := [layer.name for layer in layers if layer.parameters and not layer.tensors]:
        raise InputError(f"{where}: the model's profile is of an older version, without the shapes of {unknown[0]}")
    slots = [
        _Slot(index, tensor) for index, layer in reversed(list(enumerate(layers))) for tensor in reversed(layer.tensors)
    ]
    if faults := list(_faults(timeline, slots, layers)):
        raise InputError(*listed([f"{where}: {fault}" for fault in faults], where, _MAX_FAULTS))
    timeline = timeline.without_hooks()
    names, tensors, ready_s = defaultdict[int, list[str]](list), defaultdict[int, list[TensorTimes]](list), 0.0
    for slot, (name, at_s) in zip(slots, _matched(timeline, slots), strict=True):
        at_s = max(ready_s, min(at_s, timeline.phases_s.backward))
        names[slot.layer].append(name)
        tensors[slot.layer].insert(0, replace(slot.tensor, backward_s=at_s - ready_s))
        ready_s = at_s
    forward_s = _forward_s(timeline, layers, names)
    return tuple(
        replace(
            layer,
            tensors=tuple(tensors[index]),
            forward_s=forward_s[index],
            backward_s=sum(tensor.backward_s or 0.0 for tensor in tensors[index]),
        )
        for index, layer in enumerate(layers)
    )


# The model that a transform leaves: no device was measured with it.

_CHANGED = "how long layers that a transform changes take (by the ratio of their times on a core of this machine)"


def by_ratios(device: Profile, before: Profile, after: Profile, where: str) -> Profile:
    """Return the profile of a changed model: times on a device, as many times longer as on a core of this machine.

    Parts that a layer was changed into, such as its factors, are compared with the layer; the optimizer as a whole, and
    so what a phase takes beside its layers.

    Args:
        device, before: The model as it was, on the device and on a core of this machine.
        after: The changed model on a core of this machine.
        where: Beginning of each fault.

    Raises:
        InputError: A layer is none of the former model's, nor part of one.
    """
    here, there = ({layer.name: layer for layer in one.layers} for one in (before, device))
    layers, faults = list[LayerTimes](), list[str]()
    for layer in after.layers:
        name = layer.name if layer.name in there else layer.name.rpartition(".")[0]
        if name not in there or name not in here:
            faults.append(f"{where}: the model that the transform leaves has {layer.name}, which no layer became")
            continue
        own, its = here[name], there[name]
        layers.append(
            replace(
                layer,
                forward_s=_in_ratio(its.forward_s, layer.forward_s, own.forward_s),
                backward_s=_in_ratio(its.backward_s, layer.backward_s, own.backward_s),
            )
        )
    if faults:
        raise InputError(*listed(faults, where, _MAX_FAULTS))
    is_changed = after.layers != before.layers
    rests = {
        key: _in_ratio(*(_beside_layers(one, key) for one in (device, after, before)))
        for key in ("forward_s", "backward_s")
    }
    return replace(
        after,
        layers=tuple(layers),
        forward_s=rests["forward_s"] + sum(layer.forward_s for layer in layers),
        backward_s=rests["backward_s"] + sum(layer.backward_s for layer in layers),
        optimizer_s=_in_ratio(device.optimizer_s, after.optimizer_s, before.optimizer_s),
        other_s=device.other_s,
        work=_changed_work(device, before, after),
        assumed=device.assumed,
        basis=SCALED if is_changed and not device.assumed else device.basis,
        unknowns=(*device.unknowns, *([_CHANGED] if is_changed else [])),
        provenance={**device.provenance, "changed_by": "ratios of layers' times on a core of this machine"},
    )


def _changed_work(device: Profile, before: Profile, after: Profile) -> tuple[WorkTimes, ...]:
    """Return the strategy's own work by kind, as many times longer as on a core of this machine."""

    def seconds(profile: Profile, kind: str) -> float:
        return sum(piece.seconds for piece in profile.work if piece.kind == kind)

    return tuple(
        replace(piece, seconds=_in_ratio(seconds(device, piece.kind), piece.seconds, seconds(before, piece.kind)))
        for piece in after.work
    )


def _beside_layers(profile: Profile, phase: str) -> float:
    """Return the seconds of a phase that belong to no layer, such as drawing the batch."""
    in_layers_s = sum(float(getattr(layer, phase)) for layer in profile.layers)
    return max(0.0, float(getattr(profile, phase)) - in_layers_s)


def _in_ratio(there_s: float, after_s: float, before_s: float) -> float:
    """Return seconds on the device; unchanged where nothing was measured here, as of layers that do no work."""
    return there_s * after_s / before_s if before_s > 0 else there_s


def _key(shape: Shape) -> Shape:
    """Return what transposed matrices have in common: some implementations keep a linear map's weight transposed."""
    return tuple(sorted(shape)) if len(shape) == 2 else shape


def _matched(timeline: Timeline, slots: Sequence[_Slot]) -> Iterator[tuple[str, float]]:
    """Yield the timeline's parameter and its time for each tensor of the model, in the order of backward."""
    waiting = defaultdict[Shape, deque[tuple[str, float]]](deque)
    for name, shape, at_s in timeline.gradient_ready_s:
        waiting[_key(shape)].append((name, at_s))
    for slot in slots:
        yield waiting[_key(slot.tensor.shape)].popleft()


def _faults(timeline: Timeline, slots: Sequence[_Slot], layers: Sequence[LayerTimes]) -> Iterator[str]:
    ours = [_key(slot.tensor.shape) for slot in slots]
    theirs = [_key(shape) for _, shape, _ in timeline.gradient_ready_s]
    if Counter(ours) == Counter(theirs):
        return
    matcher = difflib.SequenceMatcher(a=ours, b=theirs, autojunk=False)
    for kind, begin, end, their_begin, their_end in matcher.get_opcodes():
        lacking, given = slots[begin:end], timeline.gradient_ready_s[their_begin:their_end]
        if kind == "replace" and len(lacking) == len(given):
            for slot, (name, shape, _) in zip(lacking, given, strict=True):
                yield f"{name}: is of shape {_text(shape)}; the model's {_place(slot, layers)}"
        elif kind != "equal":
            yield from (f"no gradient of the model's {_place(slot, layers)}; measure it too" for slot in lacking)
            yield from (f"{name}: the model has no such gradient of shape {_text(shape)}" for name, shape, _ in given)


def _place(slot: _Slot, layers: Sequence[LayerTimes]) -> str:
    return f"{layers[slot.layer].name} has one of shape {_text(slot.tensor.shape)}"


def _text(shape: Shape) -> str:
    return " x ".join(map(str, shape))


def _forward_s(timeline: Timeline, layers: Sequence[LayerTimes], names: dict[int, list[str]]) -> list[float]:
    """Return the seconds of forward of each layer."""
    starts: dict[str, float] = {}
    for module, _, at_s in timeline.forward_start_s:
        starts.setdefault(module, at_s)
    groups: list[tuple[float, list[int]]] = [(0.0, [])]
    for index in range(len(layers)):
        known = [starts[owner] for name in names[index] if (owner := name.rpartition(".")[0]) in starts]
        if known and groups[-1][1]:
            groups.append((max(groups[-1][0], min(known)), []))
        groups[-1][1].append(index)
    ends = [*(begin_s for begin_s, _ in groups[1:]), timeline.phases_s.forward]
    found = [0.0] * len(layers)
    for (begin_s, group), end_s in zip(groups, ends, strict=True):
        flop = [layers[index].forward_flop for index in group]
        weights = flop if sum(flop) else [1.0, *[0.0] * (len(group) - 1)]
        for index, weight in zip(group, weights, strict=True):
            found[index] = max(0.0, end_s - begin_s) * weight / sum(weights)
    return found
