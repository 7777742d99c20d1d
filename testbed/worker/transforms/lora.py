from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from itertools import accumulate
from typing import Annotated, Any

from torch import nn

from testbed.core.costs.low_rank import WeightLayer
from testbed.core.errors import InputError
from testbed.core.kinds import Kind, Number
from testbed.core.parameters import Count
from testbed.core.record.events.training import Factorised, ModelChange
from testbed.worker.interfaces.transform import Transform
from testbed.worker.methods.low_rank.adapters import adapt, merged
from testbed.worker.methods.low_rank.factorization import weight_layers
from testbed.worker.methods.low_rank.low_rank_transform import parameters


@dataclass(frozen=True)
class _Names(Kind):
    """Lists of names of layers or parameters, or patterns of such names."""

    type_text = "a list of names, as [head]"

    def allows(self, value: object) -> bool:
        # layers of an nn.Sequential have numbers for names, which a command line reads as such
        return bool(
            isinstance(value, list | tuple) and value and all(type(name) in (str, int) and name != "" for name in value)
        )


Names = Annotated[Sequence[str | int], _Names()]


class LoRA(Transform):
    """Keep the weights as they are, and train a low-rank term B A that is added to them: W x + alpha/rank B A x.

    Hu et al., "LoRA: Low-Rank Adaptation of Large Language Models", ICLR 2022, arXiv:2106.09685. B begins as zeros, so
    that the model is at first the one that it was made of; A is normal, from the seed. Everything else is frozen, but
    for parameters that `train` names: neither optimizer nor strategy nor compressor sees it, and it is never sent.
    Differs from the paper: convolutions may have adapters too, no dropout before them, and a projection that a model
    keeps for queries, keys and values together has one adapter for the three.

    The kept model of such a run (`checkpoint=last`) has the adapters merged into the weights, so that any run of the
    workload may begin with it.

    Args:
        rank: Rank of all adapters (r).
        alpha: Factor, times 1/rank, on what an adapter adds. With it alpha need not be sought again with the rank.
        layers: Linear maps and convolutions to adapt; null: all. Names, or patterns such as "blocks.*.attend"; a name
            stands for all inside too. Not adaptable: weights that `nn.MultiheadAttention` keeps as one tensor,
            convolutions in groups, weights that two layers share, layers that an adapter would not make smaller.
        train: Parameters trained themselves, by name or pattern. Such as the last layer ("head") or all biases
            ("*.bias"). A layer whose weight is among them has no adapter.

    Raises:
        ValueError: a parameter is not one of these.
    """

    changes_at_once = True

    def __init__(
        self,
        *,
        rank: Count = 8,
        alpha: Annotated[float, Number(above=0, below=1e6)] = 8.0,
        layers: Names | None = None,
        train: Names | None = None,
    ) -> None:
        self.rank, self.alpha = rank, alpha
        self.layers = None if layers is None else [str(name) for name in layers]
        self.train = [str(name) for name in train or ()]

    def begin(self, model: nn.Module, seed: int) -> ModelChange:
        """Add the adapters, and freeze everything else; return the event that says so.

        Raises:
            InputError: A name or pattern matches nothing, a named layer cannot have an adapter, or no layer can.
        """
        before, layers = parameters(model), weight_layers(model)
        learns = self._learning(model)
        chosen = [layer for layer in layers if self.layers is None or _any_matches(self.layers, layer.name)]
        unfit = {layer.name: reason for layer in chosen if (reason := self._unfit(layer, model, learns))}
        self._raise_faults(model, layers, unfit)
        adapted = [layer for layer in chosen if layer.name not in unfit]
        for parameter in model.parameters():
            parameter.requires_grad_(id(parameter) in learns)
        adapt(model, {layer.name: self.rank for layer in adapted}, scale=self.alpha / self.rank, seed=seed)
        others = {layer.name: "not among transform.layers" for layer in layers if layer not in chosen}
        return ModelChange(
            parameters_before=before,
            parameters=parameters(model),
            factorised=[self._described(layer) for layer in adapted],
            kept=unfit | others,
        )

    def kept(self, model: nn.Module) -> Mapping[str, Any]:
        return merged(model)

    def _learning(self, model: nn.Module) -> set[int]:
        """Return ids of the parameters that `train` names, by any of their names."""
        named = model.named_parameters(remove_duplicate=False)
        return {id(p) for name, p in named if p.requires_grad and _any_matches(self.train, name)}

    def _unfit(self, layer: WeightLayer, model: nn.Module, learns: set[int]) -> str:
        """Return the reason why a layer has no adapter; empty: it has one."""
        if layer.unfit:
            return layer.unfit
        if id(model.get_submodule(layer.name).weight) in learns:
            return "its weight is trained itself"
        if layer.groups > 1:
            return f"a convolution in {layer.groups} groups"
        if self.rank >= layer.break_even:
            return f"rank {self.rank} saves nothing: it would have to be below {layer.break_even:.1f}"
        return ""

    def _described(self, layer: WeightLayer) -> Factorised:
        elements = layer.factor_elements(self.rank)
        return Factorised(
            layer=layer.name,
            rank=self.rank,
            full_rank=layer.full_rank,
            elements=layer.elements,
            factor_elements=elements,
            lost_share=0.0,
        )

    def _raise_faults(self, model: nn.Module, layers: Sequence[WeightLayer], unfit: Mapping[str, str]) -> None:
        names = [layer.name for layer in layers]
        faults = list(_unmatched("layers", self.layers or (), names))
        faults += _unmatched("train", self.train, [name for name, _ in model.named_parameters(remove_duplicate=False)])
        if self.layers is not None:
            faults += [f"transform.layers: {name} cannot have an adapter: {reason}" for name, reason in unfit.items()]
        if not faults and not set(names) - set(unfit):
            reasons = "; ".join(f"{name}: {reason}" for name, reason in unfit.items()) or "it has no such layers"
            faults.append(f"transform: no linear map or convolution of the model can have an adapter: {reasons}")
        if faults:
            raise InputError(*faults)


def _any_matches(patterns: Sequence[str], name: str) -> bool:
    """Return True if a pattern matches `name` or a module around it."""
    around = list(accumulate(name.split("."), "{}.{}".format))
    return any(fnmatchcase(each, pattern) for pattern in patterns for each in around)


def _unmatched(key: str, patterns: Sequence[str], names: Sequence[str]) -> Iterator[str]:
    for pattern in patterns:
        if not any(_any_matches([pattern], name) for name in names):
            yield f"transform.{key}: the model has no {pattern}; it has: {', '.join(names) or 'none'}"
