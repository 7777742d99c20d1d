"""What of a model travels between server and clients: the parameters that learn, and buffers, in one order that all
know."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from compressors.base.chunks import root_mean_square
from testbed.core.errors import InputError, RunError

PARAMETER, STATISTIC, DISCRETE = "parameter", "statistic", "discrete"
"""What an item is. Statistics are the buffers of floats, such as running means and variances; discrete is whatever has
no fractions, such as `num_batches_tracked`, indices and masks."""
FLOATS = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
_DISCRETE = (torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)


@dataclass(frozen=True)
class Item:
    """One tensor of a model's state."""

    name: str
    shape: tuple[int, ...]
    dtype: torch.dtype
    kind: str

    @property
    def numel(self) -> int:
        return math.prod(self.shape)

    @property
    def wide(self) -> torch.dtype:
        """In which sums and differences are kept: float32 for halves."""
        return torch.float32 if self.dtype in (torch.float16, torch.bfloat16) else self.dtype

    def carried(self, payload: str) -> torch.dtype:
        """In which a message has it: differences and gradients of halves are no halves."""
        return self.dtype if payload == "params" or self.kind != PARAMETER else self.wide


@dataclass(frozen=True)
class Schema:
    """The items of a model's `state_dict`, sorted by name, without parameters that do not learn; what has several names
    travels once, by the first of them.

    Statistics travel lossless and are averaged, so that a variance stays above 0. Discrete items travel lossless; after
    a round each is the one of the client with most samples, of equals the one with the lowest number: a value that some
    client has, whereas a mean of counters, let alone of indices, would be no one's.
    """

    items: tuple[Item, ...]
    ties: tuple[tuple[str, str], ...] = ()
    """(name, the name it travels by)."""

    @classmethod
    def of(cls, model: nn.Module) -> Schema:
        """
        Raises:
            InputError: the model has a state that cannot travel, one line each.
        """
        state = _travelling(model)
        if faults := [fault for name, value in state.items() for fault in _faults(name, value)]:
            raise InputError(*faults)
        items, ties = [], []
        known: dict[tuple[object, ...], str] = {}
        for name, value in state.items():
            first = known.setdefault(_identity(value), name)
            if first != name:
                ties.append((name, first))
                continue
            floats = value.is_floating_point()
            kind = DISCRETE if not floats else PARAMETER if isinstance(value, nn.Parameter) else STATISTIC
            items.append(Item(name, tuple(value.shape), value.dtype, kind))
        return cls(tuple(sorted(items, key=lambda item: item.name)), tuple(ties))

    def listed(self, payload: str = "params") -> list[tuple[str, tuple[int, ...], str]]:
        """(name, shape, dtype without its prefix) of each item as a message of that payload has it, by which two ends
        tell whether they have one model."""
        return [(item.name, item.shape, str(item.carried(payload)).removeprefix("torch.")) for item in self.items]

    def take(self, model: nn.Module) -> list[Tensor]:
        """Copies of all items, contiguous, on the processor."""
        state = self._state(model)
        return [_copy(state[item.name]) for item in self.items]

    def take_gradients(self, model: nn.Module, share: float) -> list[Tensor]:
        """Of parameters `share` of their gradients, widened, zeros where there is none; of all else as `take`."""
        state = self._state(model)
        return [
            _gradient(item, state[item.name]).mul_(share) if item.kind == PARAMETER else _copy(state[item.name])
            for item in self.items
        ]

    def gradient_squares(self, model: nn.Module) -> list[float]:
        """Of parameters the mean square of their gradients' elements, 0 where there is none; 0 of all else."""
        state = self._state(model)
        return [_gradient_square(state[item.name]) if item.kind == PARAMETER else 0.0 for item in self.items]

    def put_gradients(self, model: nn.Module, tensors: Sequence[Tensor]) -> None:
        """The opposite: parameters have these as their gradients, all else is replaced."""
        self.require(tensors, "put_gradients")
        state = self._state(model)
        with torch.no_grad():
            for item, tensor in zip(self.items, tensors, strict=True):
                value = state[item.name]
                if item.kind != PARAMETER:
                    value.copy_(tensor)
                else:
                    value.grad = tensor.to(value, copy=True)

    def put(self, model: nn.Module, tensors: Sequence[Tensor]) -> None:
        """Copy `tensors`, one for each item, of any type, into the model; the opposite of `take`."""
        self.require(tensors, "put")
        state = self._state(model)
        with torch.no_grad():
            for item, tensor in zip(self.items, tensors, strict=True):
                state[item.name].copy_(tensor)

    def delta(self, values: Sequence[Tensor], reference: Sequence[Tensor]) -> list[Tensor]:
        """Of parameters `values` less `reference`, both widened; all else as it is in `values`."""
        return [
            value.to(item.wide) - old.to(item.wide) if item.kind == PARAMETER else value
            for item, value, old in zip(self.items, values, reference, strict=True)
        ]

    def moved(self, reference: Sequence[Tensor], delta: Sequence[Tensor]) -> list[Tensor]:
        """`reference` after a message of payload delta, parameters widened: the same bits wherever it is computed."""
        return [
            old.to(item.wide) + change if item.kind == PARAMETER else change
            for item, old, change in zip(self.items, reference, delta, strict=True)
        ]

    def require(self, tensors: Sequence[Tensor], what: str) -> None:
        """
        Raises:
            ValueError: they are not one tensor of the right shape for each item.
        """
        if len(tensors) != len(self.items):
            raise ValueError(f"{what}: {len(tensors)} tensors for {len(self.items)} items")
        for item, tensor in zip(self.items, tensors, strict=True):
            if tuple(tensor.shape) != item.shape:
                raise ValueError(f"{what}: {item.name} has shape {list(item.shape)}, found {list(tensor.shape)}")

    def _state(self, model: nn.Module) -> dict[str, Tensor]:
        if (found := Schema.of(model)) != self:
            changed = sorted({item.name for item in set(found.items) ^ set(self.items)}) or ["its ties or order"]
            raise RunError(f"the model is no longer the one whose schema this is: {', '.join(changed[:8])} changed")
        return _travelling(model)


def _travelling(model: nn.Module) -> dict[str, Tensor]:
    """All of its state but parameters that do not learn, which all have from the start."""
    state = model.state_dict(keep_vars=True)
    return {name: value for name, value in state.items() if not isinstance(value, nn.Parameter) or value.requires_grad}


def _copy(value: Tensor) -> Tensor:
    return value.detach().to("cpu", copy=True, memory_format=torch.contiguous_format)


def _gradient(item: Item, value: Tensor) -> Tensor:
    return torch.zeros(item.shape, dtype=item.wide) if value.grad is None else _copy(value.grad).to(item.wide)


def _gradient_square(value: Tensor) -> float:
    if value.grad is None:
        return 0.0
    rms = root_mean_square(value.grad.detach().contiguous().view(-1))
    return rms * rms


def _identity(value: Tensor) -> tuple[object, ...]:
    """The same for one tensor under two names, and for two of the same memory."""
    if value.data_ptr() == 0:
        return (id(value),)
    return value.data_ptr(), tuple(value.shape), value.stride(), value.dtype


def _faults(name: str, value: object) -> Iterator[str]:
    if not isinstance(value, Tensor):
        yield f"{name}: its state is of {type(value).__name__}; a server carries tensors alone"
    elif is_lazy(value):
        yield f"{name}: has no shape yet; run the model once before it is served"
    elif value.layout != torch.strided or value.dtype not in (*FLOATS, *_DISCRETE):
        kind = value.dtype if value.layout == torch.strided else value.layout
        known = ", ".join(str(dtype).removeprefix("torch.") for dtype in (*FLOATS, *_DISCRETE))
        yield f"{name}: is of {kind}; a server carries dense tensors of {known}"
