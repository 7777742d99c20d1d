"""Every compressor there is a configuration for, at its defaults."""

from __future__ import annotations

import importlib
from pathlib import Path

import torch
import yaml
from torch import Tensor

from compressors.base import Compressor, Layout, Route

CONF = Path(__file__).resolve().parents[2] / "experiments" / "conf" / "compressor"
NAMES = sorted(path.stem for path in CONF.glob("*.yaml"))
LAYOUT = Layout(((24, 3, 3, 3), (24,), (40, 50), (40,), (1,)))
"""Matrices, vectors, and a number of elements that is no multiple of anything."""


def make(name: str, **params: object) -> Compressor:
    settings = yaml.safe_load((CONF / f"{name}.yaml").read_text()) | params
    module, _, cls = settings.pop("_target_").rpartition(".")
    built = getattr(importlib.import_module(module), cls)(**settings)
    assert isinstance(built, Compressor)
    return built


def routes(compressor: Compressor) -> list[Route]:
    """All that its traits allow."""
    if compressor.traits.linear:
        return [Route.REDUCE_SUM]
    return [Route.GATHER, Route.TWO_SHOT] if compressor.traits.chunkable else [Route.GATHER]


CASES = [(name, route) for name in NAMES for route in routes(make(name))]


def gradients(layout: Layout, world_size: int, seed: int = 0) -> list[Tensor]:
    """Heavy-tailed, of very different sizes from one tensor to the next, as gradients are."""
    generator = torch.Generator().manual_seed(seed)
    return [
        torch.cat(
            [
                torch.randn(torch.Size(shape).numel(), generator=generator).pow(3) * 10.0 ** (-index)
                for index, shape in enumerate(layout.shapes)
            ]
        )
        for _ in range(world_size)
    ]


def rounding(compressor: Compressor) -> float:
    """Relative error of a sum over few ranks, from the dtype it is taken in."""
    return 8 * torch.finfo(compressor.traits.reduce_dtype or torch.float32).eps
