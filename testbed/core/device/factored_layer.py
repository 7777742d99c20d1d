"""Layers and Kronecker factors as K-FAC sees them: dimensions, and elements sent."""

from __future__ import annotations

import math
from dataclasses import dataclass

ELEMENT_BYTES = 4
CHOLESKY, EIGEN = "cholesky", "eigen"
FORMS = (CHOLESKY, EIGEN)
"""Of an inverse."""


@dataclass(frozen=True)
class FactoredLayer:
    """A linear map or a convolution as K-FAC has it."""

    name: str
    """Of the module."""
    inputs: int
    """Dimension of "a": one more with a bias."""
    outputs: int
    """Dimension of "g"."""
    scale: float = 1.0
    """What is sent is so many times smaller, as the links are: see core.spec.scale."""

    @property
    def gradient_elements(self) -> int:
        """That are sent of its preconditioned gradient."""
        return math.ceil(self.inputs * self.outputs / self.scale)

    def factor(self, side: str) -> Factor:
        return Factor(self.name, side, self.inputs if side == "a" else self.outputs, scale=self.scale)


@dataclass(frozen=True)
class Factor:
    """A symmetric matrix of `dimension` x `dimension`."""

    layer: str
    """The module whose gradient it preconditions."""
    side: str
    """"a": of its inputs. "g": of the gradients of its outputs."""
    dimension: int
    after_s: float = 0.0
    """From when the factor before it in order of readiness is there to when this one is."""
    scale: float = 1.0
    """As its layer's."""

    @property
    def name(self) -> str:
        return f"{self.layer}.{self.side}"

    @property
    def elements(self) -> int:
        """Of its upper triangle, all that is sent of it."""
        return math.ceil(self.dimension * (self.dimension + 1) / 2 / self.scale)

    def inverse_elements(self, form: str) -> int:
        """That are sent of its inverse: a triangle, or eigenvectors and eigenvalues."""
        if form == CHOLESKY:
            return self.elements
        return math.ceil((self.dimension**2 + self.dimension) / self.scale)
