"""Error feedback, once, around any compressor."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from compressors.base import Compressor, Context, Layout, Rounds, Route


class ErrorFeedback(Compressor):
    """Keep what was not sent, and add it to what is sent next.

    Seide, Fu, Droppo, Li, Yu, "1-Bit Stochastic Gradient Descent", Interspeech 2014; analysed by Karimireddy, Rebjock,
    Stich, Jaggi, "Error Feedback Fixes SignSGD", ICML 2019, arXiv:1901.09847, Algorithm 2 (without the learning rate:
    gradients are corrected before the optimizer sees them).

    Nothing is lost: the sum of what came in equals the sum of what was applied plus the mean residual.
    Keeps one float32 residual per bucket and stream; 4 bytes per parameter.
    """

    def __init__(self, inner: Compressor) -> None:
        super().__init__(feedback="off")
        self.inner = inner
        self.traits = inner.traits  # a wrapper is what it wraps
        self._residuals: dict[str, Tensor] = {}

    def payload_bytes(self, layout: Layout, context: Context) -> int:
        return self.inner.payload_bytes(layout, context)

    def sent_bytes(self, layout: Layout, world_size: int, route: Route, *, step: int = 0) -> int:
        return self.inner.sent_bytes(layout, world_size, route, step=step)

    def encode(self, tensor: Tensor, context: Context) -> Tensor:
        carried = self._carry(tensor, context)
        payload = self.inner.encode(carried, context)
        self.inner.decode(payload, carried, context, add=True, scale=-1.0)
        return payload

    def decode(self, payload: Tensor, out: Tensor, context: Context, *, add: bool = False, scale: float = 1.0) -> None:
        self.inner.decode(payload, out, context, add=add, scale=scale)

    def rounds(self, tensor: Tensor, context: Context, *, out: Tensor, error: Tensor | None = None) -> Rounds:
        carried = self._carry(tensor, context)
        yield from self.inner.rounds(carried, context, out=out, error=carried)
        if error is not None:
            error.zero_()  # all of it is kept here

    def residual(self, bucket: int, stream: str = "") -> Tensor | None:
        """What this rank has not sent yet; None before the first reduction."""
        return self._residuals.get(f"{bucket}/0/{stream}")

    def _carry(self, tensor: Tensor, context: Context) -> Tensor:
        key = f"{context.layout.bucket}/{context.part}/{context.stream}"
        residual = self._residuals.get(key)
        if residual is None:
            residual = self._residuals[key] = torch.zeros(tensor.numel(), dtype=torch.float32)
        return residual.add_(tensor)

    def state_dict(self) -> dict[str, Any]:
        return {
            "residuals": {key: residual.clone() for key, residual in self._residuals.items()},
            "inner": self.inner.state_dict(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._residuals = {key: residual.clone() for key, residual in state["residuals"].items()}
        self.inner.load_state_dict(state["inner"])


def with_feedback(compressor: Compressor) -> Compressor:
    """`compressor`, wrapped if its `feedback` parameter and its traits ask for it."""
    return ErrorFeedback(compressor) if compressor.uses_feedback else compressor
