"""Damping, inverses and eigenvectors of Kronecker factors, and gradients preconditioned by them.

A preconditioned gradient is G^-1 dW A^-1, dW [g, a] the gradient of a layer: Martens and Grosse, "Optimizing Neural
Networks with Kronecker-factored Approximate Curvature", ICML 2015, arXiv:1503.05671. Factors are float32 and symmetric,
and never changed here.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import TypeAlias

import torch
from torch import Tensor

from testbed.core.errors import RunError

MIN_EIGENVALUE = 1e-10
"""What is below is noise, and taken as 0."""
RETRIES = 3
"""With ten times the damping each, once double precision alone did not help."""
Eigen: TypeAlias = tuple[Tensor, Tensor]
"""Eigenvectors as columns [d, d], eigenvalues [d]."""


def split_damping(trace_a: float, dim_a: int, trace_g: float, dim_g: int, damping: float) -> tuple[float, float]:
    """What to add to the diagonals of A and of G: pi sqrt(damping) and sqrt(damping) / pi, pi^2 the mean eigenvalue of
    A over that of G. Of traces, since A and G may lie on different workers.

    Where either trace is 0 the layer is dead, no ratio is to be had, and pi is 1.

    Raises:
        RunError: a trace is negative or not finite.
    """
    if not all(math.isfinite(trace) and trace >= 0 for trace in (trace_a, trace_g)):
        raise RunError(
            f"K-FAC: the factors of a layer have traces {trace_a} and {trace_g}, no second moments: the training has "
            "diverged; take a smaller learning rate or a larger strategy.damping"
        )
    root = math.sqrt(damping)
    if trace_a == 0 or trace_g == 0:
        return root, root
    pi = math.sqrt(trace_a / dim_a) / math.sqrt(trace_g / dim_g)
    return pi * root, root / pi


def inverse(factor: Tensor, damping: float, name: str) -> tuple[Tensor, float]:
    """(factor + damping I)^-1 by Cholesky, float32, exactly symmetric; and the damping that it took.

    In double precision where single fails, or could not tell the damping from rounding; then up to `RETRIES` times
    with ten times the damping.

    Args:
        name: of the factor, for errors.

    Raises:
        RunError: the factor is not finite, or no damping tried was enough.
    """
    _require_finite(factor, name)
    if float(factor.trace()) * torch.finfo(torch.float32).eps < damping:
        found = _inverse(factor.float(), damping)
        if found is not None:
            return found, damping
    precise = factor.double()
    for retry in range(RETRIES + 1):
        found = _inverse(precise, damping * 10**retry)
        if found is not None:
            return found, damping * 10**retry
    raise RunError(
        f"K-FAC: {_described(factor, name)} has no inverse in double precision with damping {damping:.3g}, nor "
        f"with up to {damping * 10**RETRIES:.3g}; take a larger strategy.damping"
    )


def eigen(factor: Tensor, name: str) -> Eigen:
    """Eigenvectors and eigenvalues, float32, in double precision where single fails; what is below `MIN_EIGENVALUE`
    is 0.

    Args:
        name: of the factor, for errors.

    Raises:
        RunError: the factor is not finite, or has no eigenvalues in double precision either.
    """
    _require_finite(factor, name)
    found = _eigen(factor.float())
    if found is None:
        found = _eigen(factor.double())
    if found is None:
        raise RunError(
            f"K-FAC: no eigenvalues of {_described(factor, name)} in double precision; take a larger strategy.damping "
            "or a smaller learning rate"
        )
    return found


def precondition(gradient: Tensor, inverse_a: Tensor, inverse_g: Tensor) -> Tensor:
    """G^-1 dW A^-1, [g, a]."""
    return inverse_g @ gradient @ inverse_a


def precondition_eigen(gradient: Tensor, eigen_a: Eigen, eigen_g: Eigen, damping: float) -> Tensor:
    """(A (x) G + damping I)^-1 dW, [g, a]: damps the product, as `split_damping` does but about."""
    (q_a, d_a), (q_g, d_g) = eigen_a, eigen_g
    rotated = (q_g.T @ gradient @ q_a) / (torch.outer(d_g, d_a) + damping)
    return q_g @ rotated @ q_a.T


def clip_scale(steps: Iterable[tuple[Tensor, Tensor, float]], kl_clip: float | None) -> float:
    """Return the scale at which a step of all preconditioned gradients changes the model's output by `kl_clip` at most.

    It is min(1, sqrt(kl_clip / |sum lr^2 <V, dW>|)), with `kl_clip` a KL divergence. None: no limit, 1.

    The last version of the authors' code (lzhangbv/kfac_pytorch) takes the same sum. An older commit of it overwrote dW
    by V before it took the sum.

    Args:
        steps: V, dW and the learning rate of each layer. dW must not have been overwritten by V.

    Raises:
        RunError: the sum is not finite.
    """
    if kl_clip is None:
        return 1.0
    change = abs(sum(lr**2 * float((v.double() * gradient.double()).sum()) for v, gradient, lr in steps))
    if not math.isfinite(change):
        raise RunError(
            "K-FAC: the preconditioned gradients are not finite; take a larger strategy.damping or a smaller learning "
            "rate"
        )
    return 1.0 if change <= kl_clip else math.sqrt(kl_clip / change)


def _inverse(factor: Tensor, damping: float) -> Tensor | None:
    """In the precision of `factor`; None where there is no finite one."""
    damped = factor.clone()
    damped.diagonal().add_(damping)
    triangle, info = torch.linalg.cholesky_ex(damped)
    if int(info) != 0:
        return None
    found = torch.cholesky_inverse(triangle).float()
    found = (found + found.T).mul_(0.5)  # not all devices give the same number above and below the diagonal
    return found if bool(found.isfinite().all()) else None


def _eigen(factor: Tensor) -> Eigen | None:
    """In the precision of `factor`; None where it fails or gives what is not finite."""
    try:
        values, vectors = torch.linalg.eigh(factor)
    except torch.linalg.LinAlgError:  # type: ignore[attr-defined]
        return None
    values, vectors = values.float(), vectors.float()
    if not bool(values.isfinite().all() and vectors.isfinite().all()):
        return None
    return vectors.contiguous(), values.masked_fill_(values < MIN_EIGENVALUE, 0.0)


def _require_finite(factor: Tensor, name: str) -> None:
    if not bool(factor.isfinite().all()):
        raise RunError(
            f"K-FAC: {_described(factor, name)} is not finite: the training has diverged; take a smaller learning rate "
            "or a larger strategy.damping"
        )


def _described(factor: Tensor, name: str) -> str:
    return f"factor {name} ({len(factor)} x {len(factor)})"
