"""Compressors with one flaw each, of which every law has one to find."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from compressors.base.compressor import Compressor, Context, Exchange, Layout, Rounds, Route, Traits
from compressors.base.payload import from_bytes, put, require_size, to_bytes


class Sound(Compressor):
    """Sends everything, and breaks no law."""

    traits = Traits(contraction=1.0, unbiased=True)

    def payload_bytes(self, layout: Layout, context: Context) -> int:
        return 4 * layout.numel

    def encode(self, tensor: Tensor, context: Context) -> Tensor:
        return to_bytes(self.changed(tensor.float().clone(), context))

    def decode(self, payload: Tensor, out: Tensor, context: Context, *, add: bool = False, scale: float = 1.0) -> None:
        require_size(payload, 4 * out.numel(), "Sound", out.numel())
        put(out, self.restored(from_bytes(payload, torch.float32)), add, scale)

    def changed(self, values: Tensor, context: Context) -> Tensor:
        return values

    def restored(self, values: Tensor) -> Tensor:
        return values


class OwnRounds(Sound):
    """The same by an exchange of its own."""

    traits = Traits(own_rounds=True, max_rounds=1, point_to_point=False, contraction=1.0, unbiased=True)
    encode, decode = Compressor.encode, Compressor.decode

    def sent_bytes(self, layout: Layout, world_size: int, route: Route, *, step: int = 0) -> int:
        return 2 * (world_size - 1) * 4 * layout.numel

    def rounds(self, tensor: Tensor, context: Context, *, out: Tensor, error: Tensor | None = None) -> Rounds:
        (total,) = yield Exchange(kind="all_reduce", data=[tensor.clone()])
        out.copy_(self.outcome(total / context.world_size))
        if error is not None:
            error.zero_()

    def outcome(self, mean: Tensor) -> Tensor:
        return mean


class EveryoneForThemselves(Sound):
    numbers = itertools.count()

    def __init__(self, **given: Any) -> None:
        super().__init__(**given)
        self.number = next(self.numbers)

    def restored(self, values: Tensor) -> Tensor:
        return values * (1 + 1e-3 * self.number)


class OneByteMore(Sound):
    def encode(self, tensor: Tensor, context: Context) -> Tensor:
        return torch.cat([super().encode(tensor, context), torch.zeros(1, dtype=torch.uint8)])

    def decode(self, payload: Tensor, out: Tensor, context: Context, *, add: bool = False, scale: float = 1.0) -> None:
        super().decode(payload[:-1], out, context, add=add, scale=scale)


class OneRoundMore(OwnRounds):
    def rounds(self, tensor: Tensor, context: Context, *, out: Tensor, error: Tensor | None = None) -> Rounds:
        yield Exchange(kind="all_reduce", data=[torch.zeros(1)], op="max")
        yield from super().rounds(tensor, context, out=out, error=error)


class Loses(OwnRounds):
    """And says it has lost nothing."""

    def outcome(self, mean: Tensor) -> Tensor:
        return 0.9 * mean


class ClearsFirst(OwnRounds):
    def rounds(self, tensor: Tensor, context: Context, *, out: Tensor, error: Tensor | None = None) -> Rounds:
        out.zero_()
        yield from super().rounds(tensor, context, out=out, error=error)


class ChangesItsInput(Sound):
    def encode(self, tensor: Tensor, context: Context) -> Tensor:
        payload = super().encode(tensor, context)
        tensor.mul_(0.5)
        return payload


class NeverZero(Sound):
    def restored(self, values: Tensor) -> Tensor:
        return values + 1e-3


class NeverOne(Sound):
    def restored(self, values: Tensor) -> Tensor:
        return values * (values.numel() > 1)


class NeverEmpty(Sound):
    def changed(self, values: Tensor, context: Context) -> Tensor:
        return values / values.abs().max().clamp(min=1.0) * values.abs().max().clamp(min=1.0)


class HidesWhatIsNotFinite(Sound):
    def changed(self, values: Tensor, context: Context) -> Tensor:
        return values.nan_to_num(0.0, 0.0, 0.0)


class BlindToStrides(Sound):
    def encode(self, tensor: Tensor, context: Context) -> Tensor:
        return super().encode(tensor.as_strided((tensor.numel(),), (1,)), context)


class GlobalGenerator(Sound):
    def changed(self, values: Tensor, context: Context) -> Tensor:
        return values * (1 + 1e-3 * torch.rand(()))


class Square(Sound):
    """Its payloads may not be summed."""

    traits = Traits(sum_dtype=torch.float32)

    def changed(self, values: Tensor, context: Context) -> Tensor:
        return values.sign() * values.abs().sqrt()

    def restored(self, values: Tensor) -> Tensor:
        return values.sign() * values.square()


class Overflows(Sound):
    traits = Traits(sum_dtype=torch.float16)

    def payload_bytes(self, layout: Layout, context: Context) -> int:
        return 2 * layout.numel

    def encode(self, tensor: Tensor, context: Context) -> Tensor:
        return to_bytes(tensor.half())

    def decode(self, payload: Tensor, out: Tensor, context: Context, *, add: bool = False, scale: float = 1.0) -> None:
        put(out, from_bytes(payload, torch.float16).float(), add, scale)


class WrapsAround(OwnRounds):
    """Sums whole numbers that fill all of a byte, and says that three ranks can be summed."""

    traits = Traits(own_rounds=True, max_rounds=1, point_to_point=False, max_world=3)

    def sent_bytes(self, layout: Layout, world_size: int, route: Route, *, step: int = 0) -> int:
        return 2 * (world_size - 1) * layout.numel

    def rounds(self, tensor: Tensor, context: Context, *, out: Tensor, error: Tensor | None = None) -> Rounds:
        sent = tensor.sign().mul(127).to(torch.int8)
        (total,) = yield Exchange(kind="all_reduce", data=[sent])
        out.copy_(total.float().div_(127 * context.world_size))
        if error is not None:
            torch.sub(tensor, sent.float() / 127, out=error)


class Halves(Sound):
    """Biased, declared unbiased, lossless and in no need of feedback."""

    def restored(self, values: Tensor) -> Tensor:
        return 0.5 * values


class Modest(Sound):
    traits = Traits(unbiased=True)


class Varies(Sound):
    traits = Traits(fixed_size=False, contraction=1.0, unbiased=True)


class NoRounds(Sound):
    traits = Traits(own_rounds=True, max_rounds=1)


class PointToPointAfterAll(OwnRounds):
    encode, decode = Sound.encode, Sound.decode


class Repeats(Sound):
    """What it sent last, again; no stream, bucket or checkpoint makes a difference."""

    def __init__(self, **given: Any) -> None:
        super().__init__(**given)
        self.last: Tensor | None = None

    def changed(self, values: Tensor, context: Context) -> Tensor:
        last, self.last = self.last, values.clone()
        return values if last is None or len(last) != len(values) else values + 0.5 * last


class RepeatsAfterAnEmptyState(Repeats):
    def state_dict(self) -> dict[str, Any]:
        return {"last": self.last}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.last = state.get("last", self.last)


class CannotMove(Sound):
    def move_state(self, state: Any, old: Any, new: Any) -> dict[str, Any]:
        raise KeyError("bucket 3")


class TakesTheMomentum(Sound):
    def adopt(self, optimizer: torch.optim.Optimizer) -> torch.optim.Optimizer:
        for group in optimizer.param_groups:
            group["momentum"] = 0.0
        return optimizer


class AlwaysFeedback(Sound):
    uses_feedback = True


class RefusesNothing(Sound):
    traits = Traits(feedback="harmful")

    def validate(self, world_size: int) -> Iterator[str]:
        return iter(())


class FlawedLater(Sound):
    """Decodes too much after its warm-up."""

    def __init__(self, *, warm_up_steps: int = 20, **given: Any) -> None:
        super().__init__(**given)
        self.warm_up_steps = warm_up_steps

    def decode(self, payload: Tensor, out: Tensor, context: Context, *, add: bool = False, scale: float = 1.0) -> None:
        wrong = 0.0 if context.step < self.warm_up_steps else 0.1
        super().decode(payload, out, context, add=add, scale=scale * (1 + wrong))


class FlawedOnSlowLinks(Sound):
    needs_link_stats = True

    def decode(self, payload: Tensor, out: Tensor, context: Context, *, add: bool = False, scale: float = 1.0) -> None:
        super().decode(payload, out, context, add=add, scale=scale * (1 + 0.1 * bool(context.beta_s_byte)))


class FailsOnSlowLinks(Sound):
    needs_link_stats = True

    def changed(self, values: Tensor, context: Context) -> Tensor:
        return values * (1.0 / (not context.beta_s_byte))
