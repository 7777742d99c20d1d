"""How long stages take on the device that a profile describes: the whole model's times, divided."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from torch import nn

from testbed.core.parallelism.plan import Plan
from testbed.worker.device.compute_times import ComputeTimes
from testbed.worker.model.pieces import Piece


class StageTimes:
    """Emulated seconds of one micro-batch; None without a profile: as long as it takes here.

    A profile's forward and backward are of a rank's batch through the whole model. A stage has the part that its layers
    have of all layers' times, a micro-batch what `ComputeTimes.share` says, and of a piece that is shared out among tp
    ranks each has 1 / tp, which flatters shards: small matrices take more than their part of FLOPs.
    """

    def __init__(
        self, times: ComputeTimes, model: nn.Module, pieces: Sequence[Piece], plan: Plan, batch_size: int
    ) -> None:
        self._times, self._plan, self._share = times, plan, times.share(plan.micro_batch, batch_size)
        names = {module: name for name, module in model.named_modules()}
        self._forward = [
            sum(times.forward_of(names[module]) for module in piece.module.modules() if module in names)
            for piece in pieces
        ]
        self._backward = [times.backward_of(piece.module.parameters()) for piece in pieces]
        self._parts = [plan.tp if piece.shared is not None else 1 for piece in pieces]
        self._trained = sum(p.numel() for p in model.parameters() if p.requires_grad)

    def forward_s(self, stage: int, spared: Sequence[float] = ()) -> float | None:
        """
        Args:
            spared: of the first pieces of the first stage, the share of samples that they do not see.
        """
        return self._of_stage(self._times.forward_s, self._forward, stage, spared)

    def backward_s(self, stage: int) -> float | None:
        return self._of_stage(self._times.backward_s, self._backward, stage)

    def backward_of(self, parameters: Iterable[nn.Parameter], *, shared: bool) -> float:
        """Of one micro-batch, what of backward leads to these gradients of the model's parameters."""
        whole_s, total = self._times.backward_s, sum(self._backward)
        if whole_s is None or not total:
            return 0.0
        part = self._plan.tp if shared else 1
        return whole_s * self._share * self._times.backward_of(parameters) / total / part

    def optimizer_s(self, trained: Iterable[nn.Parameter]) -> float | None:
        """Of a step, of a rank that trains these."""
        whole_s = self._times.optimizer_s
        return None if whole_s is None else whole_s * sum(p.numel() for p in trained) / max(1, self._trained)

    def _of_stage(
        self, whole_s: float | None, weights: Sequence[float], stage: int, spared: Sequence[float] = ()
    ) -> float | None:
        if whole_s is None:
            return None
        layers, total = self._plan.layers_of_stage(stage, len(weights)), sum(weights)
        seen = [1 - spared[layer] if layer < len(spared) else 1.0 for layer in layers]
        parts = (weights[layer] / self._parts[layer] * share for layer, share in zip(layers, seen, strict=True))
        part = sum(parts) / total if total else 1 / self._plan.stages
        return whole_s * self._share * part
