"""What a message has of each tensor, and what its way through a codec did to it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from compressors.base.payload import NonFiniteError, PayloadError, require_bytes
from testbed.core.errors import RunError
from testbed.core.kinds import shown
from testbed.worker.methods.parameter_server.messages import lossless
from testbed.worker.methods.parameter_server.messages.lossy import errors
from testbed.worker.methods.parameter_server.messages.plan import Plan
from testbed.worker.methods.parameter_server.messages.schema import DISCRETE, PARAMETER, Item, Schema


class BoundError(RunError):
    """A codec lost more than it may: its library, or the arithmetic around it, is wrong."""


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One tensor of a message: a row of its table, and its payload."""

    index: int
    """In the schema."""
    codec: str
    """One of `Plan.names`."""
    bound: float
    """No element is off by more; 0 where nothing is lost."""
    update_rms: float
    """Root mean square of what the parameter has changed by since the receiver heard of it, before feedback; 0 of what
    is no parameter, and where there was nothing before."""
    raw_bytes: int
    payload: Tensor
    """uint8, 1-D; may share memory with the tensor that was encoded."""

    @classmethod
    def received(
        cls, *, index: int, codec: str, bound: float, update_rms: float, raw_bytes: int, data: bytearray | memoryview
    ) -> Entry:
        """
        Args:
            data: writable, and not copied.
        """
        payload = torch.frombuffer(data, dtype=torch.uint8) if len(data) else torch.empty(0, dtype=torch.uint8)
        return cls(index=index, codec=codec, bound=bound, update_rms=update_rms, raw_bytes=raw_bytes, payload=payload)

    @property
    def data(self) -> memoryview:
        """The payload's bytes, not copied."""
        array: Any = self.payload.numpy()
        return memoryview(array)

    @property
    def coded_bytes(self) -> int:
        return len(self.payload)

    @property
    def exact(self) -> bool:
        return self.codec in lossless.NAMES


@dataclass(frozen=True, kw_only=True)
class Loss:
    """Of one tensor, found by the sender."""

    name: str
    codec: str
    asked_bound: float | None
    bound: float
    update_rms: float
    max_error: float | None
    """None, as the next, where the sender did not decode."""
    rms_error: float | None
    raw_bytes: int
    coded_bytes: int


@dataclass(frozen=True)
class Encoded:
    entries: list[Entry]
    tensors: list[Tensor] | None
    """What the receiver gets, bit for bit; None where the sender did not decode."""
    losses: list[Loss]


def loss_of(entry: Entry, item: Item, asked: float | None, value: Tensor, found: Tensor | None) -> Loss:
    """
    Args:
        value: what was to be sent.
        found: what comes out; None where that is not known.

    Raises:
        BoundError: more was lost than the entry says.
    """
    largest, rms = (0.0, 0.0) if entry.exact else (None, None)
    if found is not None and not entry.exact:
        largest, rms = errors(found, value)
        if not largest <= entry.bound:
            lost = f"{entry.codec} is off by {largest:g}"
            raise BoundError(f"{item.name}: {lost}, which is more than its bound {entry.bound:g}")
    return Loss(
        name=item.name,
        codec=entry.codec,
        asked_bound=asked,
        bound=entry.bound,
        update_rms=entry.update_rms,
        max_error=largest,
        rms_error=rms,
        raw_bytes=entry.raw_bytes,
        coded_bytes=entry.coded_bytes,
    )


def require_plausible(entry: Entry, item: Item, plan: Plan, *, lossy: bool) -> None:
    """All that can be checked before a decoder sees a byte.

    Args:
        lossy: whether the item may travel so.

    Raises:
        PayloadError: no sender with this plan says so of this item.
    """
    require_bytes(entry.payload)
    raw_bytes = item.numel * item.carried(plan.payload).itemsize
    if entry.codec not in plan.names or not (entry.exact or lossy):
        raise PayloadError(f"is coded by {shown(entry.codec)}, which the plan does not have for it")
    if entry.raw_bytes != raw_bytes or entry.coded_bytes > raw_bytes:
        found = f"{entry.coded_bytes} bytes for {entry.raw_bytes}"
        raise PayloadError(f"{found}, expected at most {raw_bytes} for {raw_bytes}")
    if not (0 <= entry.bound < math.inf and 0 <= entry.update_rms < math.inf) or (entry.exact and entry.bound):
        raise PayloadError(f"a bound of {entry.bound:g} and an update of {entry.update_rms:g} are none")
    if entry.codec == lossless.UNCHANGED and entry.coded_bytes:
        raise PayloadError(f"is said to be unchanged, found {entry.coded_bytes} bytes")


def not_finite(item: Item, value: Tensor) -> str | None:
    """What is wrong with its numbers. Buffers may hold infinities, as masks do; nothing may hold NaN."""
    if item.kind == DISCRETE or not item.numel:
        return None
    if item.kind == PARAMETER:
        return None if bool(torch.isfinite(value).all()) else "holds NaN or infinity"
    return "holds NaN" if bool(torch.isnan(value).any()) else None


def require_finite(item: Item, value: Tensor) -> None:
    """
    Raises:
        NonFiniteError: see `not_finite`.
    """
    if fault := not_finite(item, value):
        raise NonFiniteError(f"{item.name}: {fault}; the training has diverged")


def require_bounds(schema: Schema, bounds: Mapping[str, float | None] | None) -> None:
    """
    Raises:
        ValueError: with a line for each that is no bound, or of no parameter.
    """
    names = {item.name for item in schema.items}
    faults = [f"bound of {name}: the model has no such tensor" for name in bounds or {} if name not in names]
    faults += [
        f"bound of {name}: {bound:g}; must be at least 0 and finite"
        for name, bound in (bounds or {}).items()
        if bound is not None and not 0 <= bound < math.inf
    ]
    if faults:
        raise ValueError("\n".join(faults))
