"""Adapters of low rank beside weights that stay as they are, and weights into which they are merged."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

import torch
from torch import Tensor, nn

from testbed.worker.methods.low_rank.factorization import replace
from testbed.worker.methods.low_rank.layers import Full, bare_conv, bare_linear


class Adapted(nn.Module):
    """y = W x + b + scale * B (A x), of a linear map or a convolution.

    A is `down`: [rank, inputs], or a convolution of the full one's kernel, stride, padding and dilation to `rank`
    channels; B is `up`: [outputs, rank], or a convolution of one place. With B of zeros it is `base`, bit for bit but
    for the sign of a zero.
    """

    def __init__(self, base: Full, down: Full, up: Full, scale: float) -> None:
        super().__init__()
        self.base, self.down, self.up, self.scale = base, down, up, scale

    def forward(self, inputs: Tensor) -> Tensor:
        change: Tensor = self.up(self.down(inputs))
        full: Tensor = self.base(inputs)
        return full + self.scale * change

    @torch.no_grad()
    def weight(self) -> Tensor:
        """W + scale * B A, a new tensor: summed in double precision."""
        full, down, up = (module.weight.double() for module in (self.base, self.down, self.up))
        change = (up.flatten(1) @ down.flatten(1)).view_as(full)
        return (full + self.scale * change).to(self.base.weight.dtype)


def adapt(model: nn.Module, ranks: Mapping[str, int], *, scale: float, seed: int) -> None:
    """Give each of these layers an adapter, wherever the model has it.

    A is normal with mean 0 and variance 1/columns, so that A x is as large as what a row of it reads; B is zeros. A
    follows from seed and layer, whatever other layers have one.

    Args:
        ranks: by layer; those that may be replaced, as `factorise.weight_layers` tells.
    """
    for name, rank in ranks.items():
        full = model.get_submodule(name)
        assert isinstance(full, nn.Linear | nn.Conv2d)
        replace(model, full, _adapted(full, rank, scale, _generator(seed, name)))


def adapted_layers(model: nn.Module) -> dict[str, Adapted]:
    """By name, in the order of modules; one that has several names under each."""
    found = model.named_modules(remove_duplicate=False)
    return {name: module for name, module in found if isinstance(module, Adapted)}


def merged(model: nn.Module) -> dict[str, Tensor]:
    """The state of the same model without adapters, its weights W + scale * B A; all else as `state_dict` has it."""
    state = dict(model.state_dict())
    for name, layer in adapted_layers(model).items():
        for key in [key for key in state if key.startswith(f"{name}.")]:
            value, own = state.pop(key), key.removeprefix(f"{name}.")
            if own.startswith("base."):
                state[f"{name}.{own.removeprefix('base.')}"] = value
        state[f"{name}.weight"] = layer.weight()
    return state


def _adapted(full: Full, rank: int, scale: float, generator: torch.Generator) -> Adapted:
    weight = full.weight
    columns = weight[0].numel()
    drawn = torch.randn(rank, columns, generator=generator) * columns**-0.5
    below = drawn.to(weight).view(rank, *weight.shape[1:])
    above = torch.zeros(weight.shape[0], rank, dtype=weight.dtype, device=weight.device)
    down: Full
    up: Full
    if isinstance(full, nn.Linear):
        down, up = bare_linear(below), bare_linear(above)
    else:
        down, up = bare_conv(full.in_channels, rank, full), bare_conv(rank, full.out_channels)
        down.weight, up.weight = nn.Parameter(below), nn.Parameter(above[:, :, None, None])
    return Adapted(full, down, up, scale).train(full.training)


def _generator(seed: int, name: str) -> torch.Generator:
    digest = hashlib.blake2b(f"lora/{seed}/{name}".encode(), digest_size=8).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest, "little") >> 1)
