"""Times of the pieces of a model on a core of this machine, and what they pass on and keep. Nothing is sent."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from testbed.core.parallelism.links import straight
from testbed.core.parallelism.model import MeasuredLayer
from testbed.core.parallelism.problem import STEP_OF_FORWARD
from testbed.worker.device.median import repeated
from testbed.worker.interfaces.workload import Batch
from testbed.worker.interfaces.workload_capabilities import Sequential
from testbed.worker.methods.pipeline.tensor_parallel import ShardedLayers, Shards
from testbed.worker.model.pieces import Piece

BUDGET_S = 1.0
"""For each number of samples; a few repeats are made in any case."""
_MIN_S = 1e-9
"""Of a piece that does nothing: a clock shows less."""


class _Alone(Shards):
    """One shard without the others: what they would sum is counted, and stays its own."""

    def __init__(self) -> None:
        self.sums, self.summed_bytes = 0, 0

    def sum(self, tensor: Tensor) -> Tensor:
        self.sums += 1
        self.summed_bytes += tensor.nbytes
        return tensor.detach().clone(memory_format=torch.contiguous_format)


@dataclass(frozen=True)
class _Chain:
    """Modules by name, each of which takes what the one before gives."""

    workload: Sequential
    modules: Mapping[str, nn.Module]


_Visit = Callable[[str, nn.Module, Tensor, Callable[[Tensor], Tensor]], Tensor]
"""Takes a module through what it is given; of the last one's, the loss is to be taken. Returns what it passes on."""


def measured_layers(
    workload: Sequential,
    pieces: Sequence[Piece],
    batches: Mapping[int, Batch],
    degrees: Sequence[int] = (1,),
    budget_s: float = BUDGET_S,
) -> tuple[MeasuredLayer, ...]:
    """Return what pieces take, pass on and keep, in order.

    A third of forward and backward together stands for one forward. What a call takes however many samples it has is
    where the line through several numbers of samples begins; of one number alone, nothing is known of it.

    Shared by several ranks, a piece takes what one of them computes; what they sum is counted, and takes no time.

    Args:
        batches: by their samples.
        degrees: how many ranks may share pieces; those that some piece is made for, and none refuses, are looked at.
    """
    samples, whole = max(batches), _Chain(workload, {piece.name: piece.module for piece in pieces})
    passed, kept = _sizes(whole, batches[samples])
    lines = {1: _lines(whole, batches, budget_s)}
    sums: dict[str, tuple[int, int]] = {}
    for tp in filter(lambda tp: tp > 1 and divides(pieces, tp), degrees):
        alone = {piece.name: _Alone() for piece in pieces}
        shard = _Chain(workload, {piece.name: _shard(piece, tp, alone[piece.name]) for piece in pieces})
        lines[tp] = _lines(shard, batches, budget_s)
        sums = _sums(shard, batches[samples], alone)
    return tuple(
        MeasuredLayer(
            name=piece.name,
            forward_s={tp: found[piece.name][1] for tp, found in lines.items()},
            call_s={tp: found[piece.name][0] for tp, found in lines.items()},
            parameter_bytes=sum(p.nbytes for p in piece.module.parameters()),
            activation_bytes=passed[piece.name] // samples,
            stored_bytes=kept[piece.name] // samples if piece.kept is None else 4 * piece.kept,
            block=piece.is_block,
            sums=sums.get(piece.name, (0, 0))[0],
            summed_bytes=sums.get(piece.name, (0, 0))[1] // samples,
        )
        for piece in pieces
    )


def divides(pieces: Sequence[Piece], tp: int) -> bool:
    """Return True if so many ranks can share what there is to share."""
    can = any(piece.shared is not None for piece in pieces)
    return can and not any(number % tp for piece in pieces for number in piece.divisible.values())


def optimizer_states(optimizer: torch.optim.Optimizer) -> int:
    """Return how many copies of the parameters it keeps, by what is there after a step; rounded up.

    Its parameters have gradients, and are not the same afterwards.
    """
    optimizer.step()
    parameters = sum(p.numel() for group in optimizer.param_groups for p in group["params"])
    states = (value for state in optimizer.state.values() for value in state.values())
    kept = sum(value.numel() for value in states if isinstance(value, Tensor) and value.ndim)
    return -(-kept // parameters)


def _shard(piece: Piece, tp: int, alone: Shards) -> nn.Module:
    return piece.module if piece.shared is None else piece.shared(ShardedLayers(tp, 0, alone))


def _lines(chain: _Chain, batches: Mapping[int, Batch], budget_s: float) -> dict[str, tuple[float, float]]:
    """By piece, thirds of what a call takes, and a sample."""
    times = {
        samples: repeated(functools.partial(_seconds, chain, batch), budget_s) for samples, batch in batches.items()
    }
    return {
        name: line({n: max(_MIN_S, found[name] / STEP_OF_FORWARD) for n, found in times.items()})
        for name in chain.modules
    }


def line(times_s: Mapping[int, float]) -> tuple[float, float]:
    """Return where the line through these begins and how it rises, neither below 0."""
    if len(times_s) == 1:
        ((samples, time_s),) = times_s.items()
        return 0.0, time_s / samples
    call_s, sample_s = straight(times_s)
    if call_s < 0:  # noise
        return 0.0, sum(times_s.values()) / sum(times_s)
    return (call_s, sample_s) if sample_s > 0 else (min(times_s.values()), 0.0)


def _seconds(chain: _Chain, batch: Batch) -> dict[str, float]:
    """CPU seconds of forward and backward, by piece."""
    seconds: dict[str, float] = {}

    def timed(name: str, module: nn.Module, given: Tensor, finish: Callable[[Tensor], Tensor]) -> Tensor:
        begin_s = time.thread_time()
        given_on = module(given)
        result = finish(given_on)
        if result.requires_grad:
            result.backward(torch.ones_like(result))
        seconds[name] = time.thread_time() - begin_s
        return given_on

    _through(chain, batch, timed)
    return seconds


def _sums(shard: _Chain, batch: Batch, alone: Mapping[str, _Alone]) -> dict[str, tuple[int, int]]:
    """Of forward and backward of this batch, how often ranks that share a piece sum, and how many bytes in all."""
    before = {name: (one.sums, one.summed_bytes) for name, one in alone.items()}
    _seconds(shard, batch)
    return {name: (one.sums - before[name][0], one.summed_bytes - before[name][1]) for name, one in alone.items()}


def _sizes(chain: _Chain, batch: Batch) -> tuple[dict[str, int], dict[str, int]]:
    """Bytes of this batch that each piece passes on, the last one none, and that it keeps for backward."""
    passed, kept = dict.fromkeys(chain.modules, 0), dict.fromkeys(chain.modules, 0)
    last = list(chain.modules)[-1]

    def looked_at(name: str, module: nn.Module, given: Tensor, finish: Callable[[Tensor], Tensor]) -> Tensor:
        own = {p.untyped_storage().data_ptr() for p in module.parameters()}
        found: dict[int, int] = {}

        def keep(tensor: Tensor) -> Tensor:
            storage = tensor.untyped_storage()
            if storage.data_ptr() not in own:
                found[storage.data_ptr()] = storage.nbytes()
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
            given_on = module(given)
            result = finish(given_on)  # what it keeps lives as long as this does: no storage's place is another's
        kept[name] = sum(found.values())
        passed[name] = 0 if name == last else given_on.nbytes
        del result
        return given_on

    _through(chain, batch, looked_at)
    return passed, kept


def _through(chain: _Chain, batch: Batch, visit: _Visit) -> None:
    """Each piece in turn, cut off from the one before: what it is given is a leaf of its own."""
    value, last = chain.workload.inputs(batch), len(chain.modules) - 1
    for place, (name, module) in enumerate(chain.modules.items()):
        given = value.detach().requires_grad_(place > 0)
        value = visit(name, module, given, (lambda out: chain.workload.loss_of(out, batch)) if place == last else _same)


def _same(value: Tensor) -> Tensor:
    return value
