"""Error feedback around any compressor: plain, EF21, and corrected for momentum."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from compressors.base.compressor import Compressor, Context, Layout, Rounds
from compressors.base.memory import Memory, moved
from compressors.base.payload import PointToPointError
from compressors.base.wrapper import Wrapper


class _Remembering(Wrapper):
    """A wrapper that keeps named memories."""

    def __init__(self, inner: Compressor, *names: str) -> None:
        super().__init__(inner)
        self._memories = {name: Memory() for name in names}

    def prepare(self, tensor: Tensor, context: Context) -> None:
        for memory in self._memories.values():
            memory.of(tensor, context)
        self.inner.prepare(tensor, context)

    def state_dict(self) -> dict[str, Any]:
        return {name: memory.state_dict() for name, memory in self._memories.items()} | {
            "inner": self.inner.state_dict()
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        for name, memory in self._memories.items():
            memory.load_state_dict(state.get(name, {}))
        self.inner.load_state_dict(state.get("inner", {}))

    def move_state(self, state: dict[str, Any], old: Sequence[Layout], new: Sequence[Layout]) -> dict[str, Any]:
        return {name: moved(state.get(name, {}), old, new) for name in self._memories} | {
            "inner": self.inner.move_state(state.get("inner", {}), old, new)
        }


class ErrorFeedback(_Remembering):
    """Keep the part of a gradient that was not sent, and add it to the next one.

    Seide, Fu, Droppo, Li, Yu, "1-Bit Stochastic Gradient Descent", Interspeech 2014; analysed by Karimireddy, Rebjock,
    Stich, Jaggi, "Error Feedback Fixes SignSGD", ICML 2019, arXiv:1901.09847, Algorithm 2 (without the learning rate:
    gradients are corrected before the optimizer sees them).

    Nothing is lost: the sum of what came in equals the sum of what was applied plus the mean residual.
    Keeps one float32 residual per bucket and stream; 4 bytes per parameter. In other buckets residuals follow their
    parameters.
    """

    def __init__(self, inner: Compressor) -> None:
        super().__init__(inner, "residuals")

    def encode(self, tensor: Tensor, context: Context) -> Tensor:
        carried = self._memories["residuals"].of(tensor, context).add_(tensor)
        payload = self.inner.encode(carried, context)
        self.inner.decode(payload, carried, context, add=True, scale=-1.0)
        return payload

    def rounds(self, tensor: Tensor, context: Context, *, out: Tensor, error: Tensor | None = None) -> Rounds:
        carried = self._memories["residuals"].of(tensor, context).add_(tensor)
        yield from self.inner.rounds(carried, context, out=out, error=carried)
        if error is not None:
            error.zero_()  # all of it is kept here

    def residual(self, bucket: int, stream: str = "") -> Tensor | None:
        """Return what this rank has not sent yet: (n,) float32. None before the first reduction."""
        return self._memories["residuals"].get(bucket, stream)


class MomentumFeedback(_Remembering):
    """Keep back velocities, not gradients: error feedback where an optimizer would apply momentum.

    Lin, Han, Mao, Wang, Dally, "Deep Gradient Compression", ICLR 2018, arXiv:1712.01887, section 3.2, Algorithm 4
    (momentum correction and factor masking). Velocity u = m u + g; the residual v grows by u, and is sent; where
    something was sent, u is set to 0. With Nesterov's momentum v grows by m u + g.
    Differs from the paper: under TWO_SHOT the rank that averages a part counts entries that its second encoding changed
    as sent.

    With an inner compressor that loses nothing, it equals momentum in the optimizer but for the masking, which then
    clears every velocity; so it is meant for sparse compressors.
    Takes the momentum out of the optimizer, which must be SGD.
    Keeps two float32 tensors per bucket and stream; 8 bytes per parameter.

    Args:
        momentum: Factor m; None takes the optimizer's.
    """

    def __init__(self, inner: Compressor, momentum: float | None = None) -> None:
        super().__init__(inner, "residuals", "velocities")
        self.traits = replace(inner.traits, owns="momentum", point_to_point=False, unbiased=False, contraction=None)
        self.momentum, self.nesterov = momentum, False

    def adopt(self, optimizer: torch.optim.Optimizer) -> torch.optim.Optimizer:
        optimizer = self.inner.adopt(optimizer)
        momentum, self.nesterov = take_momentum(optimizer, type(self.inner).__name__)
        self.momentum = momentum if self.momentum is None else self.momentum
        return optimizer

    def encode(self, tensor: Tensor, context: Context) -> Tensor:
        raise PointToPointError(f"{type(self.inner).__name__} with momentum-corrected feedback")

    def decode(self, payload: Tensor, out: Tensor, context: Context, *, add: bool = False, scale: float = 1.0) -> None:
        raise PointToPointError(f"{type(self.inner).__name__} with momentum-corrected feedback")

    def rounds(self, tensor: Tensor, context: Context, *, out: Tensor, error: Tensor | None = None) -> Rounds:
        if self.momentum is None:
            raise ValueError(
                f"feedback=momentum: {type(self.inner).__name__} was given no momentum, nor an optimizer's"
            )
        velocity = self._memories["velocities"].of(tensor, context)
        carried = self._memories["residuals"].of(tensor, context)
        velocity.mul_(self.momentum).add_(tensor)
        if self.nesterov:
            carried.add_(velocity, alpha=self.momentum).add_(tensor)
        else:
            carried.add_(velocity)
        before = carried.clone()
        yield from self.inner.rounds(carried, context, out=out, error=carried)
        velocity.masked_fill_(before.ne_(carried).bool(), 0.0)
        if error is not None:
            error.zero_()


class EF21(_Remembering):
    """Send the difference to an estimate of the gradient, and move the estimate by what was sent.

    Richtarik, Sokolov, Fatkhullin, "EF21: A New, Simpler, Theoretically Better, and Practically Faster Error Feedback",
    NeurIPS 2021, arXiv:2106.05203, Algorithm 2, from an estimate of zero.

    The inner compressor must be a contraction. Not point to point: the mean of all estimates is kept by every rank.
    Keeps two float32 tensors per bucket: this rank's estimate, and the mean of all; 8 bytes per parameter.
    """

    def __init__(self, inner: Compressor) -> None:
        super().__init__(inner, "estimates", "means")
        self.traits = replace(inner.traits, point_to_point=False, unbiased=False, contraction=None)

    def encode(self, tensor: Tensor, context: Context) -> Tensor:
        raise PointToPointError(f"{type(self.inner).__name__} with EF21")

    def decode(self, payload: Tensor, out: Tensor, context: Context, *, add: bool = False, scale: float = 1.0) -> None:
        raise PointToPointError(f"{type(self.inner).__name__} with EF21")

    def rounds(self, tensor: Tensor, context: Context, *, out: Tensor, error: Tensor | None = None) -> Rounds:
        estimate = self._memories["estimates"].of(tensor, context)
        mean = self._memories["means"].of(tensor, context)
        change = tensor.float() - estimate
        lost, moves = torch.empty_like(change), torch.empty_like(change)
        yield from self.inner.rounds(change, context, out=moves, error=lost)
        estimate.add_(change).sub_(lost)
        if error is not None:
            torch.sub(tensor, estimate, out=error)
        out.copy_(mean.add_(moves))


def with_feedback(compressor: Compressor) -> Compressor:
    """Return `compressor`, in a wrapper if its `feedback` parameter and its traits ask for one."""
    kind = compressor.feedback_kind
    if kind == "plain":
        return ErrorFeedback(compressor)
    if kind == "ef21":
        return EF21(compressor)
    if kind == "momentum":
        return MomentumFeedback(compressor, getattr(compressor, "momentum", None))
    return compressor


def without_feedback(compressor: Compressor) -> Compressor:
    """Return the compressor that `with_feedback` was given."""
    return compressor.inner if isinstance(compressor, _Remembering) else compressor


def take_momentum(optimizer: torch.optim.Optimizer, name: str) -> tuple[float, bool]:
    """Take the momentum out of an SGD optimizer, in place. Weight decay is raised to act as strongly in the long run.

    Returns:
        (factor, is_nesterov): The momentum that it had, and whether it was Nesterov's.

    Raises:
        ValueError: It is no SGD, or has dampening, or groups with different momentum.
    """
    if not isinstance(optimizer, torch.optim.SGD):
        found = type(optimizer).__name__
        raise ValueError(f"{name} applies momentum itself and needs SGD, found {found}, which has moments of its own")
    kinds = {(group["momentum"], group["nesterov"], group["dampening"]) for group in optimizer.param_groups}
    (momentum, nesterov, dampening) = min(kinds)
    if len(kinds) > 1 or (dampening and momentum):
        raise ValueError(f"{name} applies momentum itself: one factor for all parameters, without dampening")
    for group in optimizer.param_groups:
        group["momentum"], group["nesterov"] = 0.0, False
        # Decay had momentum too, and stays with the optimizer: so it acts as strongly in the long run.
        group["weight_decay"] /= 1 - momentum
    return float(momentum), bool(nesterov)
