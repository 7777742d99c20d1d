"""A compressor around another one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from compressors.base.compressor import Compressor, Context, FeedbackMode, Layout, Rounds, Route


class Around(Compressor):
    """Base of compressors that send in their own way what `inner` encodes. State is that of `inner`."""

    def __init__(self, inner: Compressor, *, feedback: FeedbackMode = "off") -> None:
        super().__init__(feedback=feedback)
        self.inner = inner
        self.traits = inner.traits
        self.needs_link_stats = inner.needs_link_stats

    def adopt(self, optimizer: torch.optim.Optimizer) -> torch.optim.Optimizer:
        return self.inner.adopt(optimizer)

    def prepare(self, tensor: Tensor, context: Context) -> None:
        self.inner.prepare(tensor, context)

    def state_dict(self) -> dict[str, Any]:
        return self.inner.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.inner.load_state_dict(state)

    def move_state(self, state: dict[str, Any], old: Sequence[Layout], new: Sequence[Layout]) -> dict[str, Any]:
        return self.inner.move_state(state, old, new)


class Wrapper(Around):
    """Compressor that does what `inner` does; derived classes change a part of it."""

    def payload_bytes(self, layout: Layout, context: Context) -> int:
        return self.inner.payload_bytes(layout, context)

    def encode(self, tensor: Tensor, context: Context) -> Tensor:
        return self.inner.encode(tensor, context)

    def decode(self, payload: Tensor, out: Tensor, context: Context, *, add: bool = False, scale: float = 1.0) -> None:
        self.inner.decode(payload, out, context, add=add, scale=scale)

    def rounds(self, tensor: Tensor, context: Context, *, out: Tensor, error: Tensor | None = None) -> Rounds:
        yield from self.inner.rounds(tensor, context, out=out, error=error)

    def sent_bytes(self, layout: Layout, world_size: int, route: Route, *, step: int = 0) -> int:
        return self.inner.sent_bytes(layout, world_size, route, step=step)

    def validate(self, world_size: int) -> Iterator[str]:
        yield from self.inner.validate(world_size)
