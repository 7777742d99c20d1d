"""Bounds on the error of lossy compression, of each tensor in each direction. Arithmetic alone.

The errors of a quantiser with the absolute bound e are about uniform on [-e, e], of root mean square e / sqrt(3). So
with e = sqrt(3) alpha u, where u is the root mean square of an update, alpha is the noise's size in terms of
the update's: what training has learnt in a round against what compression has blurred. Bounds relative to the range of
values, as compressors offer them themselves, follow the largest value alone: one outlier loosens them for all others.

How tight alpha has to be is what `testbed.worker.methods.parameter_server.bounds.adaptive` decides. Of no paper: those
on adaptive bounds that say
how they set theirs say it of other quantities.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from testbed.core.parameters import number, raise_all, whole

UPDATE, RANGE = "update", "range"
"""What alpha is a share of: the noise's root mean square of the update's, or the bound of the range of values."""
BASES = (UPDATE, RANGE)
RHO = 0.1
"""No bound is looser than so much of the range of values."""
_MAX_IMPORTANCE = 4.0
"""By importance a bound becomes at most so many times tighter, or looser."""


def update_bound(alpha: float, update_rms: float, value_range: float, *, rho: float = RHO) -> float | None:
    """The absolute bound of a message's tensor, up or down: min(sqrt(3) alpha u, rho range).

    A client's error is averaged away with those of the others, the server's reaches all; but what is lost comes later,
    by feedback, and a mean of late updates is as late. So both directions have the same bound.

    Args:
        update_rms: root mean square of clients' values less those they were sent (u).
        value_range: of the parameters: the largest less the smallest.

    Returns:
        None: nothing has changed, and only that is to be said. 0: all values are equal, or the bound is too small for
        a float; to be sent exactly.

    Raises:
        ValueError: a number is not finite, or out of its range: training has gone wrong before compression could.
    """
    raise_all(
        number("alpha", alpha, above=0, below=math.inf),
        number("update_rms", update_rms, least=0, below=math.inf),
        number("value_range", value_range, least=0, below=math.inf),
        number("rho", rho, above=0, most=1),
    )
    if update_rms == 0:
        return None
    return min(math.sqrt(3) * alpha * update_rms, rho * value_range)


def pooled_rms(rms: Sequence[float], counts: Sequence[int]) -> float:
    """Root mean square of the elements of several tensors together.

    Bounds that follow from one u for all tensors are one step for all: of the steps that cost as many bits, those with
    the least squared error, as long as steps are small.

    Args:
        rms: of each tensor.
        counts: its elements.
    """
    total = sum(counts)
    return math.sqrt(math.fsum(n * u * u for n, u in zip(counts, rms, strict=True)) / total) if total else 0.0


def importance_factors(squares: Sequence[float], counts: Sequence[int]) -> list[float]:
    """What to multiply each tensor's bound, or its alpha, by: clip(sqrt(h_mean / h), 1/4, 4).

    With n elements in a tensor, these bounds e minimise sum n log(1/e), the bits as far as bounds decide about them,
    while sum n h e^2 / 3, what errors add to the loss if h is its curvature, stays what it was without them. Where a
    factor is clipped that sum changes. L-GreCo (arXiv:2210.17357) solves the discrete case: a choice among
    compressions of each layer.

    Args:
        squares: mean square of the gradients of each tensor's elements (h): the diagonal of the Fisher information, as
            far as gradients of batches show it. A factor common to all changes nothing.
        counts: of its elements (n), by which h_mean is that of all elements together.

    Raises:
        ValueError: not one count for each, or a number is not finite or below 0.
    """
    raise_all(
        _pairs_fault(len(squares), len(counts), "counts", "tensors"),
        *(number(f"squares[{at}]", value, least=0, below=math.inf) for at, value in enumerate(squares)),
    )
    roots = [math.sqrt(value) for value in squares]
    mean = pooled_rms(roots, counts)
    return [_importance_factor(mean, root) for root in roots]


def range_bound(share: float, value_range: float) -> float:
    """The absolute bound that is `share` of the range of values, as compressors call relative (REL).

    Raises:
        ValueError: a number is not finite, or out of its range.
    """
    raise_all(
        number("share", share, above=0, below=math.inf), number("value_range", value_range, least=0, below=math.inf)
    )
    return share * value_range


def share_of_levels(levels: int) -> float:
    """The share of the range at which a quantiser's bins, of twice the bound, divide it into so many.

    Raises:
        ValueError: not one level at least.
    """
    raise_all(whole("levels", levels, 1))
    return 0.5 / levels


def mean_update_rms(update_rms: Sequence[float], samples: Sequence[int]) -> float:
    """Of the clients whose frames were decoded, weighted by the samples that each has trained on.

    Raises:
        ValueError: not one weight for each, no samples at all, or a number is not finite or below 0.
    """
    raise_all(
        _pairs_fault(len(update_rms), len(samples), "samples", "clients"),
        *(number(f"update_rms[{at}]", value, least=0, below=math.inf) for at, value in enumerate(update_rms)),
        *(whole(f"samples[{at}]", count, 0) for at, count in enumerate(samples)),
    )
    if (total := sum(samples)) == 0:
        raise ValueError(f"samples={list(samples)}: nobody has trained; there is no mean update")
    return math.fsum(value * count for value, count in zip(update_rms, samples, strict=True)) / total


def _importance_factor(mean_rms: float, rms: float) -> float:
    """
    Args:
        mean_rms, rms: of all gradients, and of the tensor's.
    """
    if mean_rms == 0:
        return 1.0
    return max(1 / _MAX_IMPORTANCE, min(_MAX_IMPORTANCE, mean_rms / rms if rms else math.inf))


def _pairs_fault(values: int, others: int, named: str, of: str) -> str | None:
    return None if values == others else f"{named}: {others} of them, for {values} {of}"
