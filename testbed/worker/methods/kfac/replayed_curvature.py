"""K-FAC of a replay: sizes and turns of its factors without their arithmetic, as a replay's gradients are."""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Tensor, nn

from testbed.core.device.factored_layer import Factor, FactoredLayer
from testbed.core.models.catalogue import Layer
from testbed.worker.interfaces.workload_capabilities import Modelled
from testbed.worker.methods.kfac.curvature import Curvature

_LOOKED_UP = ("embeddings", "tied_embeddings")
"""Layers whose weights are rows to choose from; K-FAC leaves them to the optimizer."""


class ReplayedCurvature(Curvature):
    """K-FAC's factors of a replay.

    Dimensions are those of the whole model; what is sent is smaller by the replay's scale. Nothing is learnt, and the
    device says how long all of it takes.
    """

    def __init__(self, workload: Modelled, model: nn.Module | None, batch_size: int, form: str) -> None:
        """Find the layers that have factors.

        Args:
            model: None: nothing is to run; sizes and work are those that a run would have.
        """
        whole, sent = workload.modelled_layers()
        named = {f"layers.{index}": layer for index, layer in enumerate(whole) if _weight(layer) is not None}
        modules = {} if model is None else {name: model.get_submodule(name) for name in named}
        super().__init__(modules, form=form, damping=1.0, decay=1.0, kl_clip=None)
        self._layers, self._batch_size = named, batch_size
        self._scale = sum(layer.numel for layer in whole) / sum(layer.numel for layer in sent)

    @property
    def names(self) -> list[str]:
        """Names of the layers that have factors, in the order of forward."""
        return list(self._layers)

    def layer(self, name: str) -> FactoredLayer:
        weight = _weight(self._layers[name])
        assert weight is not None
        shapes = self._layers[name].shapes
        vectors = shapes[shapes.index(weight) + 1 :]  # a bias, a normalisation's two, or all three
        has_bias = vectors.count((weight[0],)) % 2
        return FactoredLayer(name, math.prod(weight[1:]) + has_bias, weight[0], self._scale)

    def factor_flop(self, factor: Factor) -> float:
        layer = self._layers[factor.layer]
        weight = _weight(layer)
        assert weight is not None
        rows = self._batch_size * layer.forward_flop / (2 * math.prod(weight))
        return 2.0 * rows * factor.dimension**2

    def compute(self, factor: Factor, seen: Tensor, out: Tensor, *, micro_batches: int, first: bool) -> None:
        return

    def trace(self, factor: Factor, packed: Tensor) -> float:
        return 0.0

    def learn(self, factor: Factor, packed: Tensor) -> None:
        return

    def learn_trace(self, factor: Factor, trace: float) -> None:
        return

    def invert(self, factor: Factor) -> None:
        return

    def put_inverse(self, factor: Factor, out: Tensor) -> None:
        return

    def take_inverse(self, factor: Factor, sent: Tensor) -> None:
        return

    def precondition(self, name: str) -> Tensor:
        return torch.zeros(self.layer(name).gradient_elements)

    def write(self, preconditioned: Mapping[str, Tensor], optimizer: torch.optim.Optimizer) -> None:
        return


def _weight(layer: Layer) -> tuple[int, ...] | None:
    """The shape of the layer's linear map or convolution of all channels; None where it has none."""
    if layer.name in _LOOKED_UP or not layer.forward_flop:
        return None
    maps = [shape for shape in layer.shapes if len(shape) in (2, 4)]
    return None if len(maps) != 1 or maps[0][1] == 1 else maps[0]
