"""Singular values of weights: stable ranks, and factors by singular value decomposition. In double precision."""

from __future__ import annotations

import torch
from torch import Tensor


def as_matrix(weight: Tensor) -> Tensor:
    """[outputs, columns], float64: of a convolution [o, i, k, k] the columns are its inputs' places."""
    return weight.detach().flatten(1).double()


def singular_values(weight: Tensor) -> Tensor:
    """Descending. By the eigenvalues of the smaller Gram matrix, many times faster than a decomposition: those below
    1e-8 of the largest are rounding."""
    matrix = as_matrix(weight)
    gram = matrix @ matrix.T if matrix.shape[0] <= matrix.shape[1] else matrix.T @ matrix
    return torch.linalg.eigvalsh(gram).clamp_(min=0).sqrt_().flip(0)


def stable_rank(values: Tensor) -> float:
    """sum sigma^2 / sigma_max^2, of `singular_values`. Of zeros, which prefer no direction, as many as there are."""
    largest = float(values[0])
    return float((values / largest).square().sum()) if largest > 0 else float(len(values))


def share_rank(values: Tensor, share: float) -> int:
    """The least rank whose singular values add up to `share`, below 1, of all."""
    sums = values.cumsum(0)
    return int((sums < share * sums[-1]).sum()) + 1


def factors(weight: Tensor, rank: int) -> tuple[Tensor, Tensor, float]:
    """Of W = P S Q^T the best approximation of that rank: V = P_r sqrt(S_r) and U = sqrt(S_r) Q_r^T.

    Of each singular pair, of which the sign is free, the entry of P that is largest by magnitude is positive, so that
    equal weights have equal factors.

    Returns:
        U of rank x columns and V of outputs x rank, contiguous and in the weight's dtype; and the norm of what is lost,
        over W's.
    """
    left, values, right = torch.linalg.svd(as_matrix(weight), full_matrices=False)
    signs = left.gather(0, left.abs().argmax(0, keepdim=True)).sign()
    signs[signs == 0] = 1
    roots = values[:rank].sqrt()
    u = roots[:, None] * (right * signs.T)[:rank]
    v = (left * signs)[:, :rank] * roots
    norm = float(values.norm())
    lost = float(values[rank:].norm()) / norm if norm else 0.0
    return u.to(weight.dtype).contiguous(), v.to(weight.dtype).contiguous(), lost
