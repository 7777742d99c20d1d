"""What K-FAC computes of a model: factors, their moving averages and inverses, and preconditioned gradients."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor, nn

from testbed.core.costs.kfac_costs import inverting, preconditioning
from testbed.core.costs.kfac_plan import in_order
from testbed.core.device.factored_layer import CHOLESKY, EIGEN, FACTOR, PRODUCT, Factor, FactoredLayer
from testbed.core.device.profile import WorkTimes
from testbed.core.record.events.base import StepEvent
from testbed.core.record.events.kfac import Damping
from testbed.worker.interfaces.strategy import ExtraWork
from testbed.worker.methods.kfac import inverses, kronecker_factors

_Inverse = tuple[Tensor, ...]
"""Cholesky's: the inverse. Eigen: eigenvectors and eigenvalues."""


class Curvature:
    """Of the layers that have factors, by name; see `statistics` and `inverses` for the formulas.

    Martens and Grosse, "Optimizing Neural Networks with Kronecker-factored Approximate Curvature", ICML 2015,
    arXiv:1503.05671.
    """

    def __init__(
        self,
        modules: Mapping[str, nn.Module],
        *,
        form: str,
        damping: float,
        decay: float,
        kl_clip: float | None,
        record: Callable[[StepEvent], None] = lambda _: None,
    ) -> None:
        """
        Args:
            record: is told of each factor that needed more damping than `damping`.
        """
        self.modules, self._record = modules, record
        self._form, self._damping, self._decay, self._kl_clip = form, damping, decay, kl_clip
        self._averages: dict[str, Tensor] = {}
        """Packed; of the factors that this rank is told."""
        self._traces: dict[str, float] = {}
        """Of all averages, since how damping is shared by a layer's two factors follows from both."""
        self._inverses: dict[str, _Inverse] = {}
        self._rows: dict[str, int] = {}
        """Samples times places of one batch, by layer."""

    def layer(self, name: str) -> FactoredLayer:
        return FactoredLayer(name, *kronecker_factors.dimensions(self._module(name)))

    def factor_flop(self, factor: Factor) -> float:
        """Of computing it once a batch was seen."""
        return 2.0 * self._rows[factor.layer] * factor.dimension**2

    def inverse_flop(self, factor: Factor) -> float:
        """Of Cholesky's factorisation and the inverse from it; eigenvectors count as what takes as long: 4.5 times as
        much, as measured for `core.costs.kfac_costs`."""
        return (1.0 if self._form == CHOLESKY else 4.5) * factor.dimension**3

    def precondition_flop(self, name: str) -> float:
        layer = self.layer(name)
        products = 1.0 if self._form == CHOLESKY else 2.0
        return products * 2.0 * layer.inputs * layer.outputs * (layer.inputs + layer.outputs)

    def work(self, layers: Sequence[str]) -> ExtraWork:
        """Return all pieces of work on these layers, in the order of forward, whoever does them in a run."""
        factored, work = tuple(map(self.layer, layers)), []
        for factor in in_order(factored):
            work += [
                _piece(factor.name, "factor", factor.dimension, self.factor_flop(factor), FACTOR),
                _piece(inverting(factor), "inverse", factor.dimension, self.inverse_flop(factor), self._form),
            ]
        products = 2 if self._form == CHOLESKY else 4
        for name in layers:
            flop = self.precondition_flop(name)
            work.append(_piece(preconditioning(name), "precondition", 0, flop, PRODUCT, products))
        return ExtraWork(work=tuple(work), factored=factored)

    def compute(self, factor: Factor, seen: Tensor, out: Tensor, *, micro_batches: int, first: bool) -> None:
        """Add a micro-batch's share to the packed factor `out`; the first replaces what is there.

        Args:
            seen: the layer's inputs, or the gradient of its outputs, of a loss that was divided by `micro_batches`.
        """
        module = self._module(factor.layer)
        if factor.side == "a":
            matrix = kronecker_factors.input_factor(module, seen).div_(micro_batches)
        else:
            matrix = kronecker_factors.output_factor(module, seen).mul_(micro_batches)
            self._rows[factor.layer] = micro_batches * seen.numel() // factor.dimension
        packed = kronecker_factors.pack(matrix)
        if first:
            out.copy_(packed)
        else:
            out.add_(packed)

    def trace(self, factor: Factor, packed: Tensor) -> float:
        return float(packed[_diagonal(factor.dimension)].sum())

    def learn(self, factor: Factor, packed: Tensor) -> None:
        """Take a step's mean factor into its moving average."""
        average = self._averages.get(factor.name)
        if average is None:
            average = self._averages[factor.name] = kronecker_factors.pack(torch.eye(factor.dimension))
        kronecker_factors.moving_average(average, packed, self._decay)

    def learn_trace(self, factor: Factor, trace: float) -> None:
        before = self._traces.get(factor.name, float(factor.dimension))
        self._traces[factor.name] = self._decay * trace + (1 - self._decay) * before

    def invert(self, factor: Factor) -> None:
        matrix = kronecker_factors.unpack(self._averages[factor.name], factor.dimension)
        if self._form == EIGEN:
            self._inverses[factor.name] = inverses.eigen(matrix, factor.name)
        else:
            asked = self._damping_of(factor)
            found, taken = inverses.inverse(matrix, asked, factor.name)
            self._inverses[factor.name] = (found,)
            if taken != asked:
                self._record(Damping(name=factor.name, asked=asked, taken=taken))

    def put_inverse(self, factor: Factor, out: Tensor) -> None:
        """As it is sent."""
        found = self._inverses[factor.name]
        if self._form == CHOLESKY:
            out.copy_(kronecker_factors.pack(found[0]))
        else:
            out.copy_(torch.cat([found[0].reshape(-1), found[1]]))

    def take_inverse(self, factor: Factor, sent: Tensor) -> None:
        d = factor.dimension
        if self._form == CHOLESKY:
            self._inverses[factor.name] = (kronecker_factors.unpack(sent, d),)
        else:
            vectors, values = sent.split([d * d, d])
            self._inverses[factor.name] = (vectors.view(d, d).clone(), values.clone())

    def precondition(self, layer: str) -> Tensor:
        """Its gradient, preconditioned, outputs x inputs."""
        gradient = kronecker_factors.gradient_matrix(self._module(layer))
        a, g = self._inverses[f"{layer}.a"], self._inverses[f"{layer}.g"]
        if self._form == CHOLESKY:
            return inverses.precondition(gradient, a[0], g[0])
        return inverses.precondition_eigen(gradient, (a[0], a[1]), (g[0], g[1]), self._damping)

    def write(self, preconditioned: Mapping[str, Tensor], optimizer: torch.optim.Optimizer) -> None:
        """Put them, scaled as the KL clip says, in the place of the layers' gradients."""
        rates = {p: group["lr"] for group in optimizer.param_groups for p in group["params"]}
        matrices = {name: flat.view(self.layer(name).outputs, -1) for name, flat in preconditioned.items()}
        pairs = (
            (matrix, kronecker_factors.gradient_matrix(self._module(layer)), float(rates[self._module(layer).weight]))
            for layer, matrix in matrices.items()
        )
        scale = inverses.clip_scale(pairs, self._kl_clip)
        for layer, matrix in matrices.items():
            kronecker_factors.write_gradient(self._module(layer), matrix * scale)

    def _module(self, name: str) -> kronecker_factors.Layer:
        module = self.modules[name]
        assert kronecker_factors.supports(module), f"{name} has no factors"
        return module

    def _damping_of(self, factor: Factor) -> float:
        a, g = (self._traces[f"{factor.layer}.{side}"] for side in "ag")
        layer = self.layer(factor.layer)
        of_a, of_g = inverses.split_damping(a, layer.inputs, g, layer.outputs, self._damping)
        return of_a if factor.side == "a" else of_g


def _piece(name: str, kind: str, size: int, flop: float, operation: str, calls: int = 1) -> WorkTimes:
    return WorkTimes(name=name, kind=kind, size=size, seconds=0.0, flop=flop, operation=operation, calls=calls)


def _diagonal(dimension: int) -> Tensor:
    """Where a packed upper triangle, row by row, has its diagonal."""
    row = torch.arange(dimension)
    return row * dimension - row * (row - 1) // 2
