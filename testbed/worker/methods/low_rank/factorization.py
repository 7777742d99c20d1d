"""Which layers of a model may be factorised, and the model with some of them factorised, in place."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from torch import nn
from torch.nn.utils import parametrize

from testbed.core.costs.low_rank import WeightLayer
from testbed.core.record.events.training import Factorised
from testbed.worker.methods.low_rank.layers import Full, LowRank, LowRankConv2d, LowRankLinear, low_rank

_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")


def weight_layers(model: nn.Module) -> list[WeightLayer]:
    """All linear maps and convolutions of images, in the order of the model's modules.

    Everything else has no such weight: norms, embeddings, convolutions of other dimensions, recurrent layers, the
    projections that `nn.MultiheadAttention` keeps as one tensor. A module with several names has its first.
    """
    owners = _owners(model)
    return [
        _layer(name, module, owners)
        for name, module in model.named_modules()
        if name and isinstance(module, nn.Linear | nn.Conv2d) and not _is_factor(model, name)
    ]


def factorise(model: nn.Module, ranks: Mapping[str, int], *, extra_norm: bool = False) -> list[Factorised]:
    """Put two factors in the place of each layer of `ranks`, wherever the model has it.

    Biases and all other parameters stay the same objects; the weights are no longer the model's. Where a module has
    several names, all have the new one.

    Raises:
        ValueError: a layer cannot be factorised at that rank; all faults at once, and nothing is changed.
    """
    layers = {layer.name: layer for layer in weight_layers(model)}
    if faults := list(_faults(layers, ranks)):
        raise ValueError("\n".join(faults))
    found = []
    for name, rank in ranks.items():
        full = model.get_submodule(name)
        assert isinstance(full, nn.Linear | nn.Conv2d)
        made, lost = low_rank(full, rank, extra_norm=extra_norm)
        replace(model, full, made)
        layer = layers[name]
        found.append(
            Factorised(
                layer=name,
                rank=rank,
                full_rank=layer.full_rank,
                elements=layer.elements,
                factor_elements=layer.factor_elements(rank),
                lost_share=lost,
            )
        )
    return found


def low_rank_layers(model: nn.Module) -> dict[str, LowRank]:
    """By name, in the order of modules."""
    return {name: m for name, m in model.named_modules() if isinstance(m, LowRankLinear | LowRankConv2d)}


def factor_names(model: nn.Module) -> list[str]:
    """Parameters of factors, which ordinary weight decay must leave alone where Frobenius decay is used."""
    return [f"{name}.{side}.weight" for name in low_rank_layers(model) for side in "uv"]


def _faults(layers: Mapping[str, WeightLayer], ranks: Mapping[str, int]) -> Iterator[str]:
    for name, rank in ranks.items():
        if name not in layers:
            yield f"layer {name}: no linear map or convolution of this model; it has: {', '.join(layers) or 'none'}"
            continue
        layer = layers[name]
        if layer.unfit:
            yield f"layer {name}: cannot be factorised: {layer.unfit}"
        elif layer.groups > 1:
            yield f"layer {name}: a convolution in {layer.groups} groups cannot be factorised"
        elif not 1 <= rank <= layer.full_rank:
            yield f"layer {name}: rank {rank} is not from 1 to its full rank, {layer.full_rank}"


def _layer(name: str, module: Full, owners: Mapping[int, list[str]]) -> WeightLayer:
    unfit = _unfit(name, module, owners)
    if isinstance(module, nn.Linear):
        return WeightLayer(name, module.out_features, module.in_features, unfit=unfit)
    kernel = tuple(module.kernel_size)
    return WeightLayer(name, module.out_channels, module.in_channels, kernel, module.groups, unfit)


def _unfit(name: str, module: Full, owners: Mapping[int, list[str]]) -> str:
    """Why two modules in its place would not do the same, or lose something."""
    weight = module._parameters.get("weight")
    if parametrize.is_parametrized(module) or weight is None:
        return "its weight is made of other parameters"
    if type(module) not in (nn.Linear, nn.Conv2d):
        return f"it is a {type(module).__name__}, which may do more than a plain layer"
    if others := [owner for owner in owners[id(weight)] if owner != f"{name}.weight"]:
        return f"its weight is also {' and '.join(others)}"
    if not weight.requires_grad:
        return "its weight does not learn"
    if any(getattr(module, hooks) for hooks in _HOOKS):
        return "it has hooks, which would be lost"
    return ""


def _owners(model: nn.Module) -> dict[int, list[str]]:
    """Names of each parameter by its id, one for each module that has it."""
    found: dict[int, list[str]] = {}
    for name, module in model.named_modules():
        for own, parameter in module.named_parameters(recurse=False, remove_duplicate=False):
            found.setdefault(id(parameter), []).append(f"{name}.{own}" if name else own)
    return found


def _is_factor(model: nn.Module, name: str) -> bool:
    return isinstance(model.get_submodule(name.rpartition(".")[0]), LowRankLinear | LowRankConv2d)


def replace(model: nn.Module, full: nn.Module, made: nn.Module) -> None:
    """Put `made` wherever `model` has `full`."""
    for parent in list(model.modules()):
        for own, child in list(parent._modules.items()):  # with those that one module has under two names
            if child is full:
                setattr(parent, own, made)
