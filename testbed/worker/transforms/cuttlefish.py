from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from typing import Annotated, Any

import torch
from torch import Tensor, nn

from testbed.core.costs.low_rank import LowRankPlan, WeightLayer, make_plan, ratio_rank, standing
from testbed.core.kinds import Number, Whole
from testbed.core.parameters import CountOrZero, Flag, Fraction
from testbed.worker.interfaces.transform import TransformContext
from testbed.worker.methods.low_rank.factorization import factor_names, low_rank_layers
from testbed.worker.methods.low_rank.layer_times import stacks
from testbed.worker.methods.low_rank.low_rank_transform import LowRankTransform
from testbed.worker.methods.low_rank.spectrum import share_rank, singular_values, stable_rank
from testbed.worker.methods.low_rank.stable_rank import Detector, keep_by_times, scaled_rank

# Frobenius decay: weight decay of the product of two factors, in place of that of each.


class FrobeniusDecay:
    """Penalty coefficient / 2 * ||V U||^2, whose gradients V U U^T and V^T V U times coefficient the factors get.

    Khodak et al., "Initialization and Regularization of Factorized Neural Layers", ICLR 2021, arXiv:2105.01029.
    Without it ordinary decay would pull each factor by itself. No tensor of the size of V U is made.

    Args:
        coefficient: as that of ordinary weight decay, from which the factors have to be left out.
    """

    def __init__(self, model: nn.Module, coefficient: float) -> None:
        self._model, self.coefficient = model, coefficient

    def attach(self, optimizer: torch.optim.Optimizer) -> None:
        """Add the gradients just before each step of `optimizer`, to those factors that it has.

        The gradients of a step are then the mean of all ranks. If two optimizers have a layer's factors, the second
        sees the first's update.
        """
        optimizer.register_step_pre_hook(self._before)

    def _before(self, optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
        self.add(only={id(p) for group in optimizer.param_groups for p in group["params"]})

    @torch.no_grad()
    def add(self, only: set[int] | None = None) -> None:
        """Add the gradients to those of the factors.

        Args:
            only: Ids of the parameters to whose gradients they are added; None: all factors. Those without a gradient
                have none after it either.
        """
        for layer in low_rank_layers(self._model).values():
            u_weight, v_weight = layer.u.weight, layer.v.weight
            u, v = u_weight.flatten(1), v_weight.flatten(1)
            if v_weight.grad is not None and (only is None or id(v_weight) in only):
                v_weight.grad.add_((v @ (u @ u.T)).view_as(v_weight), alpha=self.coefficient)
            if u_weight.grad is not None and (only is None or id(u_weight) in only):
                u_weight.grad.add_(((v.T @ v) @ u).view_as(u_weight), alpha=self.coefficient)


_TIMED_RATIO = 0.25


class Cuttlefish(LowRankTransform):
    """Train at full rank until the stable ranks of all layers have settled, then go on at these ranks.

    Wang et al., "Cuttlefish: Low-rank Model Training without All The Tuning", MLSys 2023, arXiv:2305.02538. Rules are
    those of `worker.methods.low_rank.stable_rank` and `core.costs.low_rank`. In the authors' public code stable ranks
    are observed once an
    epoch of 300, a window of 15 of them and a tail of 11; here shares of the observations of a run of any length.
    Where they do not settle, the run stays at full rank.

    Rank 0 observes, and sends ranks as whole numbers to the others: 8 bytes a layer to each other rank at every
    observation until the switch, since rounding differences of two ranks' singular values must not decide.

    Args:
        observations: Observations of stable ranks per run, until the switch.
        window: Share of observations over which ranks are smoothed.
        tail: Share of observations over which they must settle.
        epsilon: Rank change per run below which a layer settled. The stable rank is smoothed over the window, its pace
            averaged over the tail.
        relaxed: The last two layers may change more.
        keep_first: First linear maps and convolutions that stay full. null: those that, measured on rank 0's CPU before
            the run, gain less than `speedup_threshold` from factors of a quarter of the rank; then two runs may differ.
        speedup_threshold: Least speed-up that factorises a layer (keep_first=null).
        floor: Lowest rank / full rank.
        singular_share: Least share of singular values kept; null: none. Without it the stable rank decides alone.
        rewarm_steps: Steps over which the learning rate rises after the switch.
        frobenius_decay: Frobenius decay after the switch; 0: none. Factors have no other decay then, except that of
            `strategy=lamb`.

    Raises:
        ValueError: a parameter is out of its range.
    """

    def __init__(
        self,
        *,
        observations: Annotated[int, Whole(4)] = 40,
        window: Annotated[float, Number(above=0, below=1)] = 0.125,
        tail: Annotated[float, Number(above=0, below=1)] = 0.1,
        epsilon: Annotated[float, Number(above=0, most=1e6)] = 30.0,
        relaxed: Flag = False,
        keep_first: CountOrZero | None = 1,
        speedup_threshold: Annotated[float, Number(above=0, most=100)] = 1.5,
        floor: Fraction = 0.0,
        singular_share: Fraction | None = None,
        rewarm_steps: CountOrZero = 0,
        frobenius_decay: Fraction = 1e-4,
    ) -> None:
        super().__init__(rewarm_steps=rewarm_steps)
        self.observations, self.epsilon, self.relaxed = observations, epsilon, relaxed
        self.window, self.tail = max(2, round(window * observations)), max(2, round(tail * observations))
        self.keep_first, self.speedup_threshold = keep_first, speedup_threshold
        self.floor, self.singular_share = floor, singular_share
        self.frobenius_decay = frobenius_decay

    def validate(self, steps: int) -> Iterator[str]:
        if steps < self.observations:
            yield f"observations={self.observations}: the run has {steps} steps"

    def bind(self, context: TransformContext) -> None:
        super().bind(context)
        self._require_some(self.keep_first or 0)
        self._every_steps = context.steps // self.observations
        self._observe_beyond(self._first() if self.keep_first is None else self.keep_first)
        observed = self.observed if context.comm.rank == 0 else []
        self.initial = {layer.name: stable_rank(_spectrum(context.model, layer)) for layer in observed}
        """Stable ranks of initial weights; known to rank 0 alone, as what the detector has seen."""

    @property
    def adds_to_gradients(self) -> bool:
        return super().adds_to_gradients or self.frobenius_decay > 0

    def attach(self, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        if self.frobenius_decay:
            FrobeniusDecay(model, self.frobenius_decay).attach(optimizer)

    def undecayed(self, model: nn.Module) -> list[str]:
        return factor_names(model) if self.frobenius_decay else []

    def _observe_beyond(self, first: int) -> None:
        self.kept_first = first
        """What `keep_first` comes to."""
        kept = standing(self.layers, first)
        self.observed = [layer for layer in self.layers if layer.name not in kept]
        names = [layer.name for layer in self.observed]
        pace = self.epsilon / self.observations
        self.detector = Detector(names, window=self.window, tail=self.tail, epsilon=pace, relaxed=self.relaxed)

    def _is_due(self, step: int) -> bool:
        return (step + 1) % self._every_steps == 0 and bool(self.observed)

    def _expected(self, layers: Sequence[WeightLayer]) -> LowRankPlan:
        # none, where that is to be measured: times of layers that stay full are known anyway
        return make_plan(layers, self.keep_first or 0, lambda layer: ratio_rank(layer, _TIMED_RATIO))

    def _plan_after(self, model: nn.Module, step: int) -> LowRankPlan | None:
        comm = self._context.comm
        told = torch.zeros(len(self.observed), dtype=torch.int64)
        if comm.rank == 0:
            told.copy_(self._decided(model))
        comm.broadcast(told).wait()
        if not told.any():
            return None
        ranks = dict(zip((layer.name for layer in self.observed), told.tolist(), strict=True))
        plan = make_plan(self.layers, self.kept_first, lambda layer: ranks[layer.name])
        return plan if plan.ranks else None  # they have settled where factors save nothing; that may change

    def _decided(self, model: nn.Module) -> Tensor:
        """Return the rank of each observed layer; zeros while any has not settled."""
        spectra = {layer.name: _spectrum(model, layer) for layer in self.observed}
        stable = {name: stable_rank(values) for name, values in spectra.items()}
        if not self.detector.observe(stable):
            return torch.zeros(len(self.observed), dtype=torch.int64)
        return torch.tensor([self._rank(layer, stable[layer.name], spectra[layer.name]) for layer in self.observed])

    def _rank(self, layer: WeightLayer, stable: float, values: Tensor) -> int:
        rank = scaled_rank(layer.full_rank, stable, self.initial[layer.name], self.floor)
        return rank if self.singular_share is None else max(rank, share_rank(values, self.singular_share))

    def _first(self) -> int:
        """Return the number of full first layers that rank 0 has measured."""
        context, told = self._context, torch.zeros(1, dtype=torch.int64)
        if context.comm.rank == 0:
            model = copy.deepcopy(context.model)
            found = stacks(model, self.layers, lambda: context.loss(model), _TIMED_RATIO)
            told.fill_(keep_by_times(found, self.speedup_threshold))
        context.comm.broadcast(told).wait()
        return int(told)


def _spectrum(model: nn.Module, layer: WeightLayer) -> Tensor:
    weight = model.get_submodule(layer.name).weight
    assert isinstance(weight, Tensor)
    return singular_values(weight)
