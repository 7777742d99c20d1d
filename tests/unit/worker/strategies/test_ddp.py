"""Buffers that rank 0 sends: of any type and shape, all in one message."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from testbed.worker.strategies.ddp import DDP


def model_of(value: float) -> nn.Module:
    """A model with batch normalisation, whose buffers are two vectors and a count, and one of bytes."""
    model = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3))
    model.register_buffer("mask", torch.full((5,), int(value), dtype=torch.uint8))
    for buffer in model.buffers():
        buffer.fill_(value)
    return model


class Wire:
    """Collectives whose broadcast has the bytes of rank 0."""

    def __init__(self, first: Tensor | None = None) -> None:
        self.first, self.sent = first, list[Tensor]()

    def broadcast(self, flat: Tensor) -> Any:
        self.sent.append(flat.clone())
        if self.first is not None:
            flat.copy_(self.first)
        return SimpleNamespace(wait=lambda: [flat])


def shared(rank: int, model: nn.Module, wire: Wire) -> None:
    strategy = DDP(broadcast_buffers=True)
    strategy._context = SimpleNamespace(rank=rank, model=model)  # type: ignore[assignment]
    strategy._collectives = wire  # type: ignore[assignment]
    strategy._share_buffers(list(model.buffers()))


def test_every_rank_has_the_buffers_of_rank_0_after_one_message() -> None:
    first, other, wire = model_of(7.0), model_of(1.0), Wire()
    shared(0, first, wire)
    (flat,) = wire.sent
    assert flat.nbytes == sum(buffer.nbytes for buffer in first.buffers())
    assert all(bool((buffer == 7).all()) for buffer in first.buffers())
    shared(1, other, Wire(flat))
    assert all(torch.equal(a, b) for a, b in zip(first.buffers(), other.buffers(), strict=True))


def test_a_model_without_buffers_sends_nothing() -> None:
    wire = Wire()
    shared(0, nn.Linear(3, 3), wire)
    assert wire.sent == []


def test_it_is_off_unless_asked_for() -> None:
    assert DDP().broadcast_buffers is False
    with pytest.raises(ValueError, match="broadcast_buffers=1"):
        DDP(broadcast_buffers=1)  # type: ignore[arg-type]
