from __future__ import annotations

import functools
import math
from typing import Annotated, Any

import torch
from torch import Tensor

from compressors.base.chunks import chunks
from compressors.base.compressor import Compressor, Context, FeedbackMode, Layout, Rounds, Route, Traits
from compressors.base.exact import float_spacing
from compressors.base.memory import Memory, moved
from compressors.base.payload import PayloadError, from_bytes, put, require_size, to_bytes
from compressors.base.routes import ROUTES, route_sent_bytes
from compressors.parts.optimizers import plain_sgd
from compressors.parts.selection import largest_of_rows, magnitudes
from testbed.core.kinds import Number, Whole
from testbed.core.parameters import LearningRate, raise_all, whole

_MAX_CHUNK = 256
"""Positions in a chunk are one byte."""


class DeMo(Compressor):
    """Send the largest cosine components of each rank's momentum.

    Send the components of each rank's own momentum that change fastest: the largest ones of a cosine transform.

    Peng, Quesnelle, Kingma, "DeMo: Decoupled Momentum Optimization", arXiv:2411.19870, Algorithm 1. Momentum stays on
    its rank, m = decay * m + g; of every chunk of m the `kept` largest components of its discrete cosine transform are
    sent and taken out of m; the optimizer steps by the sign of the mean of what was sent.
    Differs from the paper: chunks are ranges of the flat bucket, not squares of a matrix.

    Biased; not linear, so payloads are gathered. The output is a sign, no mean. Takes the optimizer's place: SGD
    without momentum, whose weight decay stays.
    NaN and infinity count as large, and spread over their chunk as NaN.
    Wire: components (c, kept) float32, then their positions (c, kept) uint8, with c = ceil(n / chunk_size);
    5 * c * kept bytes. Of equal components the first are kept; those of a chunk are multiples of one power of two, up
    to 2**24, and the transform's entries multiples of 2**-24, so that its sums are exact in any order.
    Keeps one float32 tensor per bucket, the momentum; 4 bytes per parameter.

    Args:
        chunk_size: Entries transformed together.
        kept: Components sent per chunk; at most `chunk_size`.
        decay: Decay of the momentum.
        learning_rate: Step size; null: the optimizer's learning rate.

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
            components = self._components(block)
            largest = largest_of_rows(magnitudes(components), self.per_chunk)
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
            components = torch.zeros(len(values[here]), size, dtype=torch.float64, device=out.device)
            components.scatter_(1, places[here].long(), values[here].double())
            found = (components @ self._transform(out.device)).float().view(-1)
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

    def _components(self, block: Tensor) -> Tensor:
        """Return the components of chunks, both (chunks, chunk_size) float32; no sum of it, nor of `decode`, rounds."""
        return _rounded(_rounded(block.double()) @ self._transform(block.device).T).float()

    def _transform(self, device: torch.device) -> Tensor:
        return _cosines(self.chunk_size).to(device)


@functools.cache
def _cosines(size: int) -> Tensor:
    """Return (size, size) float64: the orthonormal DCT-II in multiples of 2**-24; its transpose is the inverse.

    A row or column of up to 256 has magnitudes of 23 together. Times whole numbers up to 2**24, its sums stay below
    2**53 of their unit, so that float64 holds each, and the order in which a device adds does not show.
    """
    frequency = torch.arange(size, dtype=torch.float64).unsqueeze(1)
    position = torch.arange(size, dtype=torch.float64).unsqueeze(0)
    matrix = torch.cos(math.pi / size * (position + 0.5) * frequency) * math.sqrt(2 / size)
    matrix[0] /= math.sqrt(2)
    return matrix.mul_(2.0**24).round_().mul_(2.0**-24)


def _rounded(rows: Tensor) -> Tensor:
    """Return rows of float64 as multiples, up to 2**24, of what float32 resolves at the largest of each."""
    units = float_spacing(rows.abs().amax(dim=1, keepdim=True).float())
    return rows.div(units).round_().mul_(units)
