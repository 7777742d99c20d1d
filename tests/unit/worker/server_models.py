"""Models and messages for the tests of what a parameter server exchanges."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from testbed.worker.methods.parameter_server.messages.coder import Coder
from testbed.worker.methods.parameter_server.messages.entries import Encoded
from testbed.worker.methods.parameter_server.messages.plan import Plan
from testbed.worker.methods.parameter_server.messages.schema import Schema
from testbed.worker.methods.parameter_server.messages.tensor_codecs import Origin

ORIGIN = Origin(seed=7, round=3, sender=1, world_size=3)


class Net(nn.Module):
    """A kind of everything that a state may hold."""

    steps: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(60, 40)
        self.convolution = nn.Conv2d(16, 16, 3)
        self.norm = nn.BatchNorm2d(16)
        self.head = nn.Linear(40, 60)
        self.head.weight = self.embedding.weight
        self.scale = nn.Parameter(torch.tensor(1.5))
        self.register_buffer("empty", torch.empty(0, 3))
        self.register_buffer("steps", torch.tensor(2**40 + 1))
        self.register_buffer("order", torch.randperm(64))
        self.register_buffer("shown", torch.rand(40, 40) > 0.5)
        self.register_buffer("mask", torch.full((40, 40), -math.inf).triu(1))
        self.register_buffer("unsaved", torch.ones(3), persistent=False)


def net() -> Net:
    torch.manual_seed(0)
    return Net()


class One(nn.Module):
    """A single weight, large enough to travel lossy."""

    def __init__(self, dtype: torch.dtype = torch.float32, shape: tuple[int, ...] = (40, 48)) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(1)
        self.weight = nn.Parameter((0.05 * torch.randn(shape, generator=generator)).to(dtype))


def one(dtype: torch.dtype = torch.float32) -> tuple[Schema, list[Tensor], list[Tensor]]:
    """(schema, what it was, what it is a round later)."""
    model = One(dtype)
    schema = Schema.of(model)
    before = schema.take(model)
    generator = torch.Generator().manual_seed(2)
    step = 0.02 * torch.randn(before[0].shape, generator=generator)
    return schema, before, [(before[0].float() + step).to(dtype)]


def plan_up(**params: object) -> Plan:
    return Plan(**{"direction": "up", **params})  # type: ignore[arg-type]


def payload_of(schema: Schema, payload: str, before: Sequence[Tensor], after: Sequence[Tensor]) -> list[Tensor]:
    return list(after) if payload == "params" else schema.delta(after, before)


def sent(
    schema: Schema, plan: Plan, values: Sequence[Tensor], reference: Sequence[Tensor] | None, bound: float | None
) -> tuple[Encoded, list[Tensor]]:
    """What one end says and what another end makes of it, with one bound for all."""
    bounds = None if bound is None else {item.name: bound for item in schema.items}
    encoded = Coder(schema, plan).encode(values, reference, bounds=bounds, origin=ORIGIN)
    received = Coder(schema, plan).decode(encoded.entries, reference, origin=ORIGIN)
    return encoded, received


def bits(tensors: Sequence[Tensor]) -> list[bytes]:
    return [tensor.contiguous().view(-1).view(torch.uint8).numpy().tobytes() for tensor in tensors]
