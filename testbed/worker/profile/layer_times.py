"""Seconds of each layer's forward and backward, measured by hooks on the model."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from testbed.core.device.profile import LayerTimes, TensorTimes
from testbed.core.spec.run_spec import RunSpec
from testbed.worker.device.accelerator import to_device
from testbed.worker.interfaces.workload import Batch, Workload
from testbed.worker.interfaces.workload_capabilities import KnownFlop, Modelled
from testbed.worker.model.layers import layer_names, layer_sizes

_REST = ""
"""What belongs to no layer: drawing the batch, the loss, backward's end."""
Repeat = Callable[[Callable[[], dict[str, float]]], dict[str, float]]


class _Marks:
    """Moments, each with the name of what the time before it belongs to."""

    def __init__(self, device: torch.device) -> None:
        self._cuda = device.type == "cuda"
        self._marks: list[tuple[str, Any]] = []

    def mark(self, before: str) -> None:
        if self._cuda:
            event = torch.cuda.Event(enable_timing=True)
            event.record()
            self._marks.append((before, event))
        else:
            self._marks.append((before, time.thread_time()))

    def take(self) -> dict[str, float]:
        """Seconds by name since the last call."""
        if self._cuda:
            torch.cuda.synchronize()
        seconds: dict[str, float] = defaultdict(float)
        for (_, since), (name, until) in zip(self._marks, self._marks[1:], strict=False):
            seconds[name] += since.elapsed_time(until) * 1e-3 if self._cuda else until - since
        self._marks.clear()
        return seconds


def measure_layers(
    workload: Workload, model: nn.Module, spec: RunSpec, repeat: Repeat
) -> tuple[tuple[LayerTimes, ...], float, float]:
    """Of one batch on the model's own device; also all of forward, and of backward."""
    device = next((p.device for p in model.parameters()), torch.device("cpu"))
    marks, names = _Marks(device), layer_names(model)
    hooks = [*_forward_hooks(model, names, marks), *_backward_hooks(model, marks)]
    batch = workload.batch(0, rank=0, world_size=spec.workers, batch_size=spec.batch_size, seed=spec.seed)
    batch = to_device(batch, device)

    def once() -> dict[str, float]:
        for parameter in model.parameters():
            if parameter.grad is not None:
                parameter.grad.zero_()
        marks.mark(_REST)
        loss = workload.loss(model, batch)
        marks.mark(f"f:{_REST}")
        loss.backward()
        marks.mark(f"b:{_REST}")
        return marks.take()

    seconds = repeat(once)
    for hook in hooks:
        hook.remove()
    if isinstance(workload, KnownFlop):
        flop = workload.forward_flop(model, batch)
    else:
        flop = counted_flop(workload, model, batch)
    sizes, tensors = layer_sizes(model), _tensors(workload, model, names)
    layers = tuple(
        LayerTimes(
            name=name,
            parameters=sizes[name],
            forward_s=seconds.get(f"f:{name}", 0.0) if name else 0.0,
            backward_s=seconds.get(f"b:{name}", 0.0) if name else 0.0,
            forward_flop=flop.get(name, 0.0),
            tensors=tensors[name],
        )
        for name in names
    )
    totals = (sum(s for label, s in seconds.items() if label.startswith(kind)) for kind in ("f:", "b:"))
    forward_s, backward_s = totals
    return layers, forward_s, backward_s


def _tensors(workload: Workload, model: nn.Module, names: list[str]) -> dict[str, tuple[TensorTimes, ...]]:
    """Return each layer's own parameters that learn, without times; of a replay with the shapes of its table."""
    whole = dict[str, tuple[tuple[int, ...], ...]]()
    if isinstance(workload, Modelled):
        whole = {f"layers.{index}": layer.shapes for index, layer in enumerate(workload.modelled_layers()[0])}
    found: dict[str, tuple[TensorTimes, ...]] = {}
    for name in names:
        own = [p for p in model.get_submodule(name).parameters(recurse=False) if p.requires_grad]
        shapes = whole.get(name) or tuple(tuple(p.shape) for p in own)
        found[name] = tuple(TensorTimes(elements=p.numel(), shape=s) for p, s in zip(own, shapes, strict=True))
    return found


def counted_flop(workload: Workload, model: nn.Module, batch: Batch) -> dict[str, float]:
    """By layer, of matrix products and convolutions, which are nearly all."""
    counter = FlopCounterMode(display=False)
    with counter, torch.no_grad():
        workload.loss(model, batch)
    root = type(model).__name__
    counts = counter.get_flop_counts()
    return {name: float(sum(counts.get(f"{root}.{name}", {}).values())) for name in layer_names(model)}


def _forward_hooks(model: nn.Module, names: list[str], marks: _Marks) -> Iterator[Any]:
    """A layer's own time, without that of the layers inside."""
    inside: list[str] = []

    def entered(name: str) -> None:
        marks.mark(f"f:{inside[-1] if inside else _REST}")
        inside.append(name)

    def left() -> None:
        marks.mark(f"f:{inside.pop()}")

    for name in names:
        if name:
            module = model.get_submodule(name)
            yield module.register_forward_pre_hook(lambda *_, name=name: entered(name))
            yield module.register_forward_hook(lambda *_: left())


def _backward_hooks(model: nn.Module, marks: _Marks) -> Iterator[Any]:
    """Gradients arrive as backward goes; the time before one belongs to its layer."""
    for name, parameter in model.named_parameters():
        if not parameter.requires_grad:
            continue  # backward does not come to it; what it takes to pass belongs to the next one
        layer = name.rpartition(".")[0]
        yield parameter.register_post_accumulate_grad_hook(lambda _, layer=layer: marks.mark(f"b:{layer}"))
