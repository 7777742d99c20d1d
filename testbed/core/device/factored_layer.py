"""Layers and Kronecker factors of K-FAC: dimensions, and numbers of elements that are sent."""

from __future__ import annotations

import math
from dataclasses import dataclass

ELEMENT_BYTES = 4
CHOLESKY, EIGEN = "cholesky", "eigen"
FORMS = (CHOLESKY, EIGEN)
"""Forms of an inverse."""
FACTOR, PRODUCT = "factor", "product"
"""Operations of K-FAC besides inverses, which have the names of their forms."""


@dataclass(frozen=True)
class FactoredLayer:
    """A linear map or a convolution that has Kronecker factors."""

    name: str
    """Name of the module."""
    inputs: int
    """Dimension of "a": one more with a bias."""
    outputs: int
    """Dimension of "g"."""
    scale: float = 1.0
    """Factor by which sent tensors are smaller, as the links are: see core.spec.scale."""

    @property
    def gradient_elements(self) -> int:
        """Number of elements that are sent of its preconditioned gradient."""
        return math.ceil(self.inputs * self.outputs / self.scale)

    def factor(self, side: str) -> Factor:
        return Factor(self.name, side, self.inputs if side == "a" else self.outputs, scale=self.scale)


@dataclass(frozen=True)
class Factor:
    """A symmetric matrix of `dimension` x `dimension`."""

    layer: str
    """Name of the module whose gradient it preconditions."""
    side: str
    """Side of the layer: "a" of its inputs, "g" of the gradients of its outputs."""
    dimension: int
    after_s: float = 0.0
    """Seconds from the moment that the factor before it in order of readiness is there until this one is."""
    scale: float = 1.0
    """Factor of its layer by which sent tensors are smaller."""

    @property
    def name(self) -> str:
        return f"{self.layer}.{self.side}"

    @property
    def elements(self) -> int:
        """Number of elements of its upper triangle, the only part that is sent."""
        return math.ceil(self.dimension * (self.dimension + 1) / 2 / self.scale)

    def inverse_elements(self, form: str) -> int:
        """Return the elements that are sent of its inverse: a triangle, or eigenvectors and eigenvalues."""
        if form == CHOLESKY:
            return self.elements
        return math.ceil((self.dimension**2 + self.dimension) / self.scale)
