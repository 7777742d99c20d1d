"""Compressors that take bytes of others for what they should be, each in another way."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from compressors.base.compressor import Context, Exchange, Rounds, Traits
from compressors.base.payload import (
    PayloadError,
    from_bytes,
    put,
    require_bytes,
    require_finite,
    require_size,
    to_bytes,
)
from tests.contract.flawed import OwnRounds, Sound


class AView(Sound):
    def encode(self, tensor: Tensor, context: Context) -> Tensor:
        return to_bytes(tensor.float())


class IgnoresScale(Sound):
    def decode(self, payload: Tensor, out: Tensor, context: Context, *, add: bool = False, scale: float = 1.0) -> None:
        super().decode(payload, out, context, add=add)


class WritesByAddress(Sound):
    def decode(self, payload: Tensor, out: Tensor, context: Context, *, add: bool = False, scale: float = 1.0) -> None:
        super().decode(payload, out.as_strided((out.numel(),), (1,)), context, add=add, scale=scale)


class Aligned(Sound):
    def decode(self, payload: Tensor, out: Tensor, context: Context, *, add: bool = False, scale: float = 1.0) -> None:
        require_size(payload, 4 * out.numel(), "Aligned", out.numel())
        put(out, payload.view(torch.float32), add, scale)


class TakesAnyLength(Sound):
    def decode(self, payload: Tensor, out: Tensor, context: Context, *, add: bool = False, scale: float = 1.0) -> None:
        require_bytes(payload)
        values = torch.zeros(out.numel())
        found = from_bytes(payload[: len(payload) // 4 * 4], torch.float32)[: out.numel()]
        values[: len(found)] = found
        put(out, values, add, scale)


class TakesAnyType(Sound):
    def decode(self, payload: Tensor, out: Tensor, context: Context, *, add: bool = False, scale: float = 1.0) -> None:
        payload = payload.reshape(-1).to(torch.uint8)
        super().decode(payload if len(payload) == 4 * len(out) else payload.new_zeros(4 * len(out)), out, context)


class TrustsTheSize(Sound):
    def decode(self, payload: Tensor, out: Tensor, context: Context, *, add: bool = False, scale: float = 1.0) -> None:
        require_bytes(payload)
        put(out, payload.view(-1, 4).view(torch.float32).view(-1), add, scale)


class Trusting(Sound):
    """Believes what the header counts."""

    traits = Traits(fixed_size=False, contraction=1.0, unbiased=True)

    def encode(self, tensor: Tensor, context: Context) -> Tensor:
        return torch.cat([to_bytes(torch.tensor([tensor.numel()])), super().encode(tensor, context)])

    def decode(self, payload: Tensor, out: Tensor, context: Context, *, add: bool = False, scale: float = 1.0) -> None:
        count = int(from_bytes(payload[:8], torch.int64))
        room = torch.zeros(count)
        room[: len(payload) // 4 - 2] = from_bytes(payload[8:], torch.float32)
        if count != out.numel():
            raise PayloadError("another size")
        put(out, room, add, scale)


class RefusesOnly(Sound):
    """Refuses NaN and infinity where it sends, though it is said to carry them."""

    def encode(self, tensor: Tensor, context: Context) -> Tensor:
        require_finite(tensor, type(self).__name__)
        return super().encode(tensor, context)


class TakesNaNOfOthers(RefusesOnly):
    """Refuses them where it sends, and believes that others do so too."""

    traits = replace(Sound.traits, carries_non_finite=False)


class SumsNaNOfOthers(OwnRounds):
    """The same of a sum."""

    traits = replace(OwnRounds.traits, carries_non_finite=False)

    def rounds(self, tensor: Tensor, context: Context, *, out: Tensor, error: Tensor | None = None) -> Rounds:
        require_finite(tensor, type(self).__name__)
        yield from super().rounds(tensor, context, out=out, error=error)


class TakesNaN(Sound):
    """Is said to refuse NaN, and carries it."""

    traits = replace(Sound.traits, carries_non_finite=False)


class BelievesPeers(OwnRounds):
    """That what they send is as long as what it asked for."""

    def rounds(self, tensor: Tensor, context: Context, *, out: Tensor, error: Tensor | None = None) -> Rounds:
        arrived = yield Exchange(kind="all_gather", data=[to_bytes(tensor.clone())])
        out.copy_(torch.stack([from_bytes(payload, torch.float32) for payload in arrived]).mean(dim=0))
        if error is not None:
            error.zero_()


class BelievesTheirCounts(OwnRounds):
    """And makes room for what they say is coming."""

    def rounds(self, tensor: Tensor, context: Context, *, out: Tensor, error: Tensor | None = None) -> Rounds:
        (most,) = yield Exchange(kind="all_reduce", data=[torch.tensor([tensor.numel()])], op="max")
        room = torch.zeros(int(most))
        yield from super().rounds(tensor, context, out=out, error=error)
        out.add_(room[: len(out)])
