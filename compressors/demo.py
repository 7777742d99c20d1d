from __future__ import annotations

import functools
import math
from typing import Annotated, Any

import torch
from torch import Tensor

from compressors.base.chunks import chunks
from compressors.base.compressor import Compressor, Context, FeedbackMode, Layout, Rounds, Route, Traits
from compressors.base.memory import Memory, moved
from compressors.base.payload import PayloadError, from_bytes, put, require_size, to_bytes
from compressors.base.routes import ROUTES, route_sent_bytes
from compressors.parts.optimizers import plain_sgd
from testbed.core.kinds import Number, Whole
from testbed.core.parameters import LearningRate, raise_all, whole

_MAX_CHUNK = 256
"""Positions in a chunk are one byte."""


class DeMo(Compressor):
    """Send the components of each rank's own momentum that change fastest: the largest ones of a cosine transform.

    Peng, Quesnelle, Kingma, "DeMo: Decoupled Momentum Optimization", arXiv:2411.19870, Algorithm 1. Momentum stays on
    its rank, m = decay * m + g; of every chunk of m the `kept` largest components of its discrete cosine transform are
    sent and taken out of m; the optimizer steps by the sign of the mean of what was sent.
    Differs from the paper: chunks are ranges of the flat bucket, not squares of a matrix.

    Biased; not linear, so payloads are gathered. The output is a sign, no mean. Takes the optimizer's place: SGD
    without momentum, whose weight decay stays.
    NaN and infinity count as large, and spread over their chunk as NaN.
    Wire: components (c, kept) float32, then their positions (c, kept) uint8, with c = ceil(n / chunk_size);
    5 * c * kept bytes. The last bits of a component, and which of equals are kept, may differ between kinds of device.
    Keeps one float32 tensor per bucket, the momentum; 4 bytes per parameter.

    Args:
        chunk_size: Entries transformed together.
        kept: Components sent of each chunk, at most chunk_size.
        decay: Share of the momentum that is kept from step to step.
        learning_rate: Distance of a step of 1; null: the optimizer's learning rate.

    Raises:
        ValueError: a parameter is out of its range.
    """

    def __init__(
        self,
        *,
        chunk_size: Annotated[int, Whole(2, _MAX_CHUNK)] = 64,
        kept: Annotated[int, Whole(1, _MAX_CHUNK)] = 8,
        decay: Annotated[float, Number(above=0, below=1)] = 0.999,
        learning_rate: LearningRate | None = 0.001,
        feedback: FeedbackMode = "auto",
    ) -> None:
        raise_all(whole("kept", kept, 1, chunk_size))
        super().__init__(feedback=feedback)
        self.chunk_size, self.per_chunk, self.decay, self.learning_rate = chunk_size, kept, decay, learning_rate
        self.traits = Traits(
            own_rounds=True,
            max_rounds=1,
            averages=False,
            # The transform keeps lengths, and the largest of its components are kept.
            contraction=min(kept / chunk_size, 1 - 1e-6),  # and it rounds
            feedback="builtin",
            owns="optimizer",
        )
        self._momentum = Memory()

    def adopt(self, optimizer: torch.optim.Optimizer) -> torch.optim.Optimizer:
        return plain_sgd(optimizer, self.learning_rate)

    def payload_bytes(self, layout: Layout, context: Context) -> int:
        return 5 * self._chunks(layout.numel) * self.per_chunk

    def sent_bytes(self, layout: Layout, world_size: int, route: Route, *, step: int = 0) -> int:
        return route_sent_bytes(self, layout, world_size, Route.GATHER, step)

    def encode(self, tensor: Tensor, context: Context) -> Tensor:
        rows, size = self._chunks(tensor.numel()), self.chunk_size
        values = torch.empty(rows, self.per_chunk, device=tensor.device)
        places = torch.empty(rows, self.per_chunk, dtype=torch.uint8, device=tensor.device)
        for piece in chunks(tensor, size):
            padding = -(piece.stop - piece.start) % size
            block = torch.nn.functional.pad(tensor[piece].float(), (0, padding)).view(-1, size)
            components = block @ self._transform(tensor.device).T
            largest = components.abs().topk(self.per_chunk, dim=1).indices.sort(dim=1).values
            here = slice(piece.start // size, piece.start // size + len(block))
            values[here], places[here] = components.gather(1, largest), largest
        return torch.cat([to_bytes(values), to_bytes(places)])

    def decode(self, payload: Tensor, out: Tensor, context: Context, *, add: bool = False, scale: float = 1.0) -> None:
        rows, kept, size = self._chunks(out.numel()), self.per_chunk, self.chunk_size
        require_size(payload, 5 * rows * kept, type(self).__name__, out.numel())
        values = from_bytes(payload[: 4 * rows * kept], torch.float32).view(rows, kept)
        places = payload[4 * rows * kept :].view(rows, kept)
        if size < _MAX_CHUNK and bool((places >= size).any()):
            raise PayloadError(f"DeMo payload for {out.numel()} elements: a position beyond its chunk of {size}")
        for piece in chunks(out, size):
            here = slice(piece.start // size, -(-piece.stop // size))
            components = torch.zeros(len(values[here]), size, device=out.device)
            components.scatter_(1, places[here].long(), values[here])
            found = (components @ self._transform(out.device)).view(-1)
            put(out[piece], found[: piece.stop - piece.start], add, scale)

    def rounds(self, tensor: Tensor, context: Context, *, out: Tensor, error: Tensor | None = None) -> Rounds:
        momentum = self._momentum.of(tensor, context).mul_(self.decay).add_(tensor)
        if error is not None:
            error.zero_()  # what is not sent stays in the momentum
        yield from ROUTES[Route.GATHER](self, momentum, context, out, momentum)
        out.copy_(torch.where(out.isfinite(), out.sign(), torch.nan))  # of NaN, sign makes 0

    def state_dict(self) -> dict[str, Any]:
        return {"momentum": self._momentum.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._momentum.load_state_dict(state.get("momentum", {}))

    def move_state(self, state: dict[str, Any], old: Any, new: Any) -> dict[str, Any]:
        return {"momentum": moved(state.get("momentum", {}), old, new)}

    def _chunks(self, numel: int) -> int:
        return -(-numel // self.chunk_size)

    def _transform(self, device: torch.device) -> Tensor:
        return _cosines(self.chunk_size).to(device)


@functools.cache
def _cosines(size: int) -> Tensor:
    """Return (size, size): the orthonormal transform DCT-II; its transpose is the inverse."""
    frequency = torch.arange(size, dtype=torch.float64).unsqueeze(1)
    position = torch.arange(size, dtype=torch.float64).unsqueeze(0)
    matrix = torch.cos(math.pi / size * (position + 0.5) * frequency) * math.sqrt(2 / size)
    matrix[0] /= math.sqrt(2)
    return matrix.float()
