"""Layer by layer through forward and backward, for what is begun inside of them: on the clock, a layer's time is over
when its work is."""

from __future__ import annotations

from torch import nn

from testbed.worker.device.clock import PhaseClock
from testbed.worker.model.layers import layer_names


class LayerPace:
    """Spends each layer's share of the open phase; copies of the model have the hooks too, but no part in this."""

    def __init__(self, model: nn.Module, clock: PhaseClock, micro_batches: int) -> None:
        self._clock, self._micro_batches = clock, micro_batches
        self._names = {model.get_submodule(name): name for name in layer_names(model)}
        self._left: set[nn.Module] = set()
        """Those that this forward has called."""
        for layer in self._names:
            # by functions, not methods: a copy of the model would copy what methods are bound to
            layer.register_forward_hook(lambda layer, *_: self._leave(layer))

    def follow_backward(self) -> None:
        """Too; before anything else waits for gradients, since hooks are called in the order of their registration."""
        for layer in self._names:
            for parameter in layer.parameters(recurse=False):
                if parameter.requires_grad:
                    parameter.register_post_accumulate_grad_hook(lambda parameter: self._arrived(parameter))

    def begin(self) -> None:
        """Another forward."""
        self._left.clear()

    def _leave(self, layer: nn.Module) -> None:
        if layer in self._names and layer not in self._left:
            self._left.add(layer)  # its time is that of all its calls
            self._clock.spend(self._clock.times.forward_of(self._names[layer]) / self._micro_batches)

    def _arrived(self, parameter: nn.Parameter) -> None:
        self._clock.spend(self._clock.times.backward_of([parameter]) / self._micro_batches)
