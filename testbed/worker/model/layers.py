"""Layers of a model: their names, and the sizes of their trainable parameters."""

from __future__ import annotations

from torch import nn


def layer_names(model: nn.Module) -> list[str]:
    """Modules that have parameters of their own or no modules inside, in order."""
    return [
        name
        for name, module in model.named_modules()
        if next(module.parameters(recurse=False), None) is not None or not any(module.children())
    ]


def layer_sizes(model: nn.Module) -> dict[str, int]:
    """Elements of each one's own parameters that learn, in order."""
    own = {name: model.get_submodule(name).parameters(recurse=False) for name in layer_names(model)}
    return {name: sum(p.numel() for p in parameters if p.requires_grad) for name, parameters in own.items()}
