"""Hooks that show K-FAC the inputs of each layer and the gradients of its outputs, in the order of the pass."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor, nn

Seen = Callable[[str, Tensor], None]
"""Of a layer, by its name: its inputs, or its outputs' gradient."""


class Observer:
    """Calls `inputs` before a layer's forward and `gradient` before its backward; copies of the model are not seen."""

    def __init__(self, modules: Mapping[str, nn.Module], inputs: Seen, gradient: Seen) -> None:
        self._names = {module: name for name, module in modules.items()}
        self._inputs, self._gradient = inputs, gradient
        self.is_on = False
        """Whether this pass is of interest."""
        self.layers: dict[str, None] = {}
        """That were called since `begin`, in the order of first calls."""
        for module in self._names:
            # by functions, not methods: a copy of the model would copy what methods are bound to
            module.register_forward_pre_hook(
                lambda module, inputs, named: self._enter(module, inputs[0] if inputs else named["input"]),
                with_kwargs=True,
            )
            module.register_forward_hook(lambda module, inputs, output: self._leave(module, output))

    def begin(self, *, is_on: bool) -> None:
        """Another step."""
        self.is_on, self.layers = is_on, {}

    def _enter(self, module: nn.Module, inputs: Tensor) -> None:
        name = self._names.get(module)
        if name is None or not self.is_on or not torch.is_grad_enabled():
            return
        self.layers[name] = None
        self._inputs(name, inputs.detach())

    def _leave(self, module: nn.Module, output: Tensor) -> None:
        name = self._names.get(module)
        if name is None or not self.is_on or not output.requires_grad:
            return
        output.register_hook(lambda gradient: self._gradient(name, gradient))
