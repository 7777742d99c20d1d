"""Buckets of one DistributedDataParallel model, each with a compressor, from step to step."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn.parallel import DistributedDataParallel

from compressors.base.compressor import Compressor, Layout
from testbed.worker.reduction.reducer import Reducer


@dataclass
class Slot:
    """State of the bucket of one index, kept as long as its parameters stay the same."""

    parameters: Sequence[Tensor]
    layout: Layout
    compressor: Compressor
    """One for each bucket: when DDP lays buckets anew, those before the first changed one are already under way."""

    def holds(self, parameters: Sequence[Tensor]) -> bool:
        """Return True if the bucket consists of these parameters in this order."""
        return len(parameters) == len(self.parameters) and all(
            ours is theirs for ours, theirs in zip(self.parameters, parameters, strict=True)
        )


class ModelBuckets:
    """Averages the buckets of one model, and knows its parameters.

    DDP lays its buckets anew after the first backward. What a compressor keeps of a parameter then goes with it, by the
    rule of its `move_state`.

    Args:
        parameters: All parameters of the model that DDP reduces.
        make: Returns a new compressor.
    """

    def __init__(self, parameters: Sequence[Tensor], make: Callable[[], Compressor], reducer: Reducer) -> None:
        self.parameters = set(parameters)
        self.reducer = reducer
        self.slots: list[Slot] = []
        self.gone: list[Slot] = []
        """Buckets of the earlier laying, until all buckets of the new one have come."""
        self._make = make
        self._names: dict[Tensor, str] = {}
        self._futures: list[tuple[torch.futures.Future[Tensor], Tensor]] = []
        self._step = 0

    def start(
        self, index: int, parameters: Sequence[Tensor], flat: Tensor, *, is_last: bool
    ) -> torch.futures.Future[Tensor]:
        """Begin to average a bucket; its future ends with the last bucket of the step."""
        slot = self._slot(index, parameters)
        self.reducer.comm.step = self._step + 1
        self.reducer.compressor = slot.compressor
        self.reducer.start(flat, slot.layout, self._step)
        future = torch.futures.Future[torch.Tensor]()
        self._futures.append((future, flat))
        if is_last:
            self._finish()
        return future

    def _finish(self) -> None:
        self.reducer.finish()
        futures, self._futures, self.gone = self._futures, [], []
        for future, flat in futures:
            future.set_result(flat)
        self._step += 1

    def holds(self, index: int, parameters: Sequence[Tensor]) -> bool:
        """Return True if the bucket of this index is laid as it was in the step before."""
        return index < len(self.slots) and self.slots[index].holds(parameters)

    def _slot(self, index: int, parameters: Sequence[Tensor]) -> Slot:
        if self.holds(index, parameters):
            return self.slots[index]
        if index < len(self.slots):
            # Buckets come in order, so that this is the first one that has changed: all from here on are laid anew.
            self.gone = self.slots[index:]
            del self.slots[index:]
        for parameter in parameters:
            self._names.setdefault(parameter, str(len(self._names)))
        layout = Layout(tuple(tuple(p.shape) for p in parameters), index, tuple(self._names[p] for p in parameters))
        slot = Slot(parameters, layout, self._make())
        if self.gone:
            kept = _joined([gone.compressor.state_dict() for gone in self.gone])
            slot.compressor.load_state_dict(
                slot.compressor.move_state(kept, [gone.layout for gone in self.gone], [layout])
            )
        self.slots.append(slot)
        return slot


def owners(parameters: Sequence[Tensor]) -> Iterator[DistributedDataParallel]:
    """Yield the living DistributedDataParallel models that reduce all of these parameters; a hook is not told which."""
    wanted = set(parameters)
    for found in gc.get_objects():
        if issubclass(type(found), DistributedDataParallel) and wanted <= set(found.parameters()):
            yield found


def _joined(states: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return what several compressors keep, each of a bucket of its own, as one would keep it of all these buckets."""
    joined: dict[str, Any] = {}
    for state in states:
        for key, value in state.items():
            both = isinstance(value, dict) and isinstance(joined.get(key), dict)
            joined[key] = _joined([joined[key], value]) if both else value
    return joined
