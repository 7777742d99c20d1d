"""Every compressor there is a configuration for, at its defaults."""

from __future__ import annotations

from torch import Tensor

from compressors.base.compressor import Compressor, Layout, Route
from testbed.worker.laws.cases import catalogue, registry
from testbed.worker.laws.cases.registry import LAYOUT, Case, gradients
from testbed.worker.plugins import compressor_catalogue

__all__ = ["CODECS", "CONF", "LAYOUT", "NAMES", "assert_close", "case", "gradients", "make", "routes"]
CONF = compressor_catalogue.CONF
NAMES = compressor_catalogue.names()


def case(name: str) -> Case:
    return catalogue.case(compressor_catalogue.part(name))


def make(name: str, **params: object) -> Compressor:
    """
    Raises:
        ValueError: with the faults of its parameters, as its constructor raises them.
    """
    part = compressor_catalogue.part(name, params)
    return compressor_catalogue.built(part.target, part.params)


def routes(compressor: Compressor) -> list[Route]:
    """All that its traits allow."""
    return registry.routes(compressor.traits)


CASES = {name: case(name) for name in NAMES}
CODECS = [name for name in NAMES if CASES[name].traits.point_to_point]


def assert_close(found: Tensor, expected: Tensor, scale: Tensor, layout: Layout, compressor: Compressor) -> None:
    """Equal up to the rounding of a sum of a few, of each tensor of the layout by its own magnitude in `scale`."""
    registry.require_close(found, expected, scale, layout, registry.precision_of(compressor.traits), "what was found")
