"""Every compressor there is a configuration for, at its defaults."""

from __future__ import annotations

import importlib
import math
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
    if compressor.traits.own_rounds:
        return [Route.OWN]
    if compressor.traits.sum_dtype is not None:
        return [Route.REDUCE_SUM]
    return [Route.GATHER, Route.TWO_SHOT] if compressor.traits.chunkable else [Route.GATHER]


CODECS = [name for name in NAMES if make(name).traits.point_to_point]
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


def assert_close(found: Tensor, expected: Tensor, scale: Tensor, layout: Layout, compressor: Compressor) -> None:
    """Equal up to the rounding of a sum of a few, of each tensor of the layout by its own magnitude in `scale`."""
    info = torch.finfo(compressor.traits.sum_dtype or torch.float32)
    sizes = [math.prod(shape) for shape in layout.shapes]
    pieces = zip(found.split(sizes), expected.split(sizes), scale.split(sizes), strict=True)
    for shape, (ours, theirs, magnitude) in zip(layout.shapes, pieces, strict=True):
        # Below its smallest normal, a number is off by a part of that.
        allowed = 8 * info.eps * max(float(magnitude.abs().max()), info.tiny)
        off = float((ours.double() - theirs.double()).abs().max())
        assert off <= allowed, f"tensor {shape}: off by {off:g}, allowed {allowed:g}"
