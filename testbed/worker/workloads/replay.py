from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any

import torch
from torch import Tensor, nn

from testbed.core.kinds import Number
from testbed.core.models.catalogue import Layer, Model, ModelOrFile, find_model
from testbed.core.models.scaled import scaled
from testbed.core.parameters import Count
from testbed.worker.data.drawn_tensors import add_drawn
from testbed.worker.data.gradient_pool import ALIGNMENT, BAND_NUMEL, DENSE, RECTIFIED, SPARSE_ROWS, gradient_pool
from testbed.worker.data.replayed_blocks import blocks_of
from testbed.worker.data.replayed_pieces import Emitting, ReplayedPiece, replayed_pieces
from testbed.worker.data.textures import CHANGE, EMBEDDING, WEIGHTS, family_of, kind_of, texture_of
from testbed.worker.interfaces.workload import Workload
from testbed.worker.model.pieces import Piece

_BANDS = {"fc6": RECTIFIED, "fc7": RECTIFIED, "fc8": RECTIFIED, "embeddings": SPARSE_ROWS}
"""Weights of layers whose gradients hold many zeros; all others are dense."""
WARM_UP_NUMEL = 2**22


@dataclass(frozen=True)
class Moment:
    """A batch without data: the values that gradients depend on, apart from their place in the model."""

    seed: int
    rank: int
    step: int
    samples: int = 1
    """Number of samples, on which gradients do not depend."""


class Replay(Workload):
    """A big model's bytes without its arithmetic: parameters of the exact shapes, gradients from a shared pool.

    Backward visits the layers in the real order, each parameter's hooks are called, and gradients are added into
    whatever `grad` holds, so that strategies and compressors run as with any model. Nothing is learnt: there is no
    loss, no metric, and the optimizer does nothing. Computing takes no time of its own; the device says how long it
    lasts. A worker's own memory is what its strategy and compressor take.

    Gradients depend on seed, rank, step and tensor. Their statistics are in docs/replay.md, with what they lack:
    they are independent of each other over ranks and steps, and have no low rank.

    Args:
        model: Model whose layers are replayed. By name, or by the path of a table (docs/timelines.md).
        tokens: Sequence length of language models; null: the model's.
        scale: Divisor of tensors and links (S). See core.spec.scale.
        epoch_samples: Samples that count as an epoch.

    Raises:
        ValueError: the model is unknown, or a parameter is out of its range.
    """

    metric = None
    computes = False

    def __init__(
        self,
        *,
        model: Annotated[str, ModelOrFile()],
        tokens: Count | None = None,
        scale: Annotated[float, Number(least=1, below=1e6)] = 1,
        epoch_samples: Count = 1_000_000,
    ) -> None:
        self.table: Model = find_model(model, tokens)
        self.layers: tuple[Layer, ...] = scaled(self.table, scale)
        """What is sent, in the order of forward; FLOPs are the unscaled model's."""
        self._samples, self._scale = epoch_samples, scale
        self._buffers_bytes = math.ceil(self.table.buffers_bytes / scale)

    def preload(self) -> None:
        """Make the pool, and the views that this model needs, for all workers that are forked from this process."""
        gradient_pool().reserve(max(math.prod(shape) for layer in self.layers for shape in layer.shapes))

    def model(self, seed: int) -> nn.Module:
        self.preload()
        return ReplayModel(self.layers, self._buffers_bytes)

    def warm_up_model(self, model: nn.Module) -> nn.Module:
        """Some of the layers: without buckets gradients have memory of their own, and warming up should need little."""
        room, chosen = WARM_UP_NUMEL, list[Layer]()
        for layer in sorted(self.layers, key=lambda layer: layer.numel, reverse=True):
            if 0 < layer.numel <= room:
                chosen.append(layer)
                room -= layer.numel
        smallest = min((layer for layer in self.layers if layer.numel), key=lambda layer: layer.numel)
        return ReplayModel(tuple(chosen) or (smallest,))

    def optimizer(self, parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
        return Idle(parameters)

    def samples(self) -> int:
        return self._samples

    def batch(self, step: int, *, rank: int, world_size: int, batch_size: int, seed: int) -> Moment:
        """Return a batch without data, which says which gradients are to come."""
        return Moment(seed, rank, step, batch_size)

    def left(self) -> Tensor:
        """Return the numbers of all samples: none can be held out."""
        return torch.arange(self._samples)

    def picked(self, numbers: Tensor) -> Moment:
        """Return a batch without data, whose gradients follow from the first of its numbers."""
        return Moment(seed=0, rank=0, step=int(numbers[0]), samples=len(numbers))

    def own_parameters(self, model: nn.Module, seed: int) -> str:
        for layer in _layers_of(model):
            for parameter in layer.parameters():
                parameter.data = torch.zeros(parameter.shape)
        self._draw(model, list(model.parameters()), WEIGHTS, f"{seed}/weights", f"{seed}/weights", steps=1)
        return family_of(self.table)

    def draw_change(
        self, model: nn.Module, only: Sequence[nn.Parameter], *, seed: int, rank: int, round_: int, steps: int
    ) -> None:
        self._draw(model, only, CHANGE, f"{seed}/{round_}", f"{seed}/{round_}/{rank}", steps=steps)

    @torch.no_grad()
    def _draw(
        self, model: nn.Module, only: Sequence[nn.Parameter], what: str, common: str, own: str, *, steps: int
    ) -> None:
        family, wanted = family_of(self.table), set(map(id, only))
        for layer in _layers_of(model):
            whole = self.table.layers[layer.index]
            for number, parameter in enumerate(layer.parameters()):
                if id(parameter) not in wanted:
                    continue
                shape = whole.shapes[number]
                kind = kind_of(whole, shape)
                texture, columns = texture_of(what, family, kind), _columns(kind, shape)
                tensor = f"{layer.index}.{number}"
                add_drawn(
                    parameter.data,
                    texture,
                    columns=min(columns, parameter.numel()),
                    scale=texture.scale(steps, columns),
                    common=f"{tensor}/{common}",
                    own=f"{tensor}/{own}",
                )

    def split(self, batch: Moment, parts: int) -> list[Moment]:
        """Return parts of a batch, each with gradients of its own."""
        first = batch.step * parts
        return [replace(batch, step=first + part, samples=batch.samples // parts) for part in range(parts)]

    def loss(self, model: nn.Module, batch: Moment) -> Tensor:
        """Return zero, to start backward from; it means nothing, and is not recorded."""
        return model(batch)

    def pieces(self, model: nn.Module) -> list[Piece]:
        """Return the blocks of a transformer, with what is around them; other models have no chain, and none."""
        assert isinstance(model, ReplayModel)
        layers = [layer for layer in model.layers if isinstance(layer, Emitting)]
        return replayed_pieces(blocks_of(self.table), layers, self._scale, Moment(0, 0, 0))

    def inputs(self, batch: Moment) -> Tensor:
        """Return a zero for each sample."""
        return torch.zeros(batch.samples, 1)

    def loss_of(self, output: Tensor, batch: Moment) -> Tensor:
        return output

    def prompt(self, pieces: nn.Module, batch: Moment) -> None:
        for piece in pieces.children():
            assert isinstance(piece, ReplayedPiece)
            piece.moment = batch

    def forward_flop(self, model: nn.Module, batch: Moment) -> dict[str, float]:
        """Return the FLOPs of the table: nothing is computed that could be counted."""
        return {f"layers.{index}": batch.samples * layer.forward_flop for index, layer in enumerate(self.layers)}

    def modelled_layers(self) -> tuple[tuple[Layer, ...], tuple[Layer, ...]]:
        return self.table.layers, self.layers

    def evaluate(self, model: nn.Module) -> float:
        raise NotImplementedError("a replay has no metric, so there is nothing to evaluate")


class Idle(torch.optim.Optimizer):
    """Optimizer that changes nothing: parameters of a replay mean nothing, and writing to them would take memory."""

    def __init__(self, parameters: Iterable[nn.Parameter]) -> None:
        super().__init__(parameters, {})

    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        return


class ReplayModel(nn.Module):
    """One module for each layer, called one after another, and one buffer as large as all of the model's."""

    def __init__(self, layers: tuple[Layer, ...], buffers_bytes: int = 0) -> None:
        super().__init__()
        self._table, self._buffers_bytes = layers, buffers_bytes
        if buffers_bytes:
            self.register_buffer("caches", torch.zeros(buffers_bytes, dtype=torch.uint8))
        self.layers = nn.ModuleList(ReplayLayer(layer, index) for index, layer in enumerate(layers))

    def forward(self, moment: Moment) -> Tensor:
        chain = torch.zeros(())
        for layer in self.layers:
            chain = layer(chain, moment)
        return chain

    def __deepcopy__(self, memo: dict[int, Any]) -> ReplayModel:
        """Return a copy, which takes no memory of its own either."""
        return ReplayModel(self._table, self._buffers_bytes)


class ReplayLayer(Emitting):
    def __init__(self, layer: Layer, index: int) -> None:
        super().__init__()
        self.layer, self.index = layer, index
        self._lent: list[Tensor] = []
        pool = gradient_pool()
        for number, shape in enumerate(layer.shapes):
            self.register_parameter(f"tensor{number}", nn.Parameter(pool.parameter(shape)))

    def gradients(self, moment: Moment) -> list[Tensor]:
        pool = gradient_pool()
        self._lent = [
            pool.gradient(band_of(self.layer.name, self.index, number), offset_of(moment, self.index, number), shape)
            for number, shape in enumerate(self.layer.shapes)
        ]
        return self._lent


def _layers_of(model: nn.Module) -> list[ReplayLayer]:
    return [module for module in model.modules() if isinstance(module, ReplayLayer)]


def _columns(kind: str, shape: tuple[int, ...]) -> int:
    """Return how many values a row has: all inputs of an output, one embedding, or a whole vector."""
    return shape[-1] if kind == EMBEDDING or len(shape) == 1 else math.prod(shape[1:])


def band_of(name: str, layer: int, number: int) -> int:
    """Return the texture of a tensor's gradients: the same in every step and on every rank."""
    if number == 0 and name in _BANDS:
        return _BANDS[name]
    return DENSE[_digest(f"{layer}/{number}") % len(DENSE)]


def offset_of(moment: Moment, layer: int, number: int) -> int:
    key = f"{moment.seed}/{moment.rank}/{moment.step}/{layer}/{number}"
    return _digest(key) % (BAND_NUMEL // ALIGNMENT) * ALIGNMENT


def _digest(key: str) -> int:
    return int.from_bytes(hashlib.blake2b(key.encode(), digest_size=8).digest(), "little")
