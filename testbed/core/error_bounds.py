"""Bounds on the error of lossy compression, of each tensor in each direction. Arithmetic alone.

The errors of a quantiser with the absolute bound e are about uniform on [-e, e], of root mean square e / sqrt(3). So
with e = sqrt(3) alpha u, where u is the root mean square of a tensor's update, alpha is the noise's size in terms of
the update's: what training has learnt in a round against what compression has blurred. Bounds relative to the range of
values, as compressors offer them themselves, follow the largest value alone: one outlier loosens them for all others.

How tight alpha has to be is what `testbed.core.bound_schedules` decides. Of no paper: those on adaptive bounds that say
how they set theirs say it of other quantities.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from testbed.core.parameter_faults import number, raise_all, whole

UPDATE, RANGE = "update", "range"
"""What alpha is a share of: the noise's root mean square of the update's, or the bound of the range of values."""
BASES = (UPDATE, RANGE)
RHO = 0.1
"""No bound is looser than so much of the range of values."""
LEAST_FACTOR, MOST_FACTOR = 0.25, 4.0
"""Of the importance of layers."""


def uplink_bound(
    alpha: float, update_rms: float, value_range: float, *, rho: float = RHO, factor: float = 1.0
) -> float | None:
    """The absolute bound of what a client sends of a tensor: min(sqrt(3) alpha u factor, rho range).

    Args:
        update_rms: root mean square of the client's values less those it was sent (u).
        value_range: of the parameters: the largest less the smallest.
        factor: of layers and clients, as of `importance_factors` and `client_factors`; it does not lift the cap.

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
        number("factor", factor, above=0, below=math.inf),
    )
    if update_rms == 0:
        return None
    return min(math.sqrt(3) * alpha * update_rms * factor, rho * value_range)


def downlink_bound(
    alpha: float, update_rms: float, clients: int, value_range: float, *, rho: float = RHO, factor: float = 1.0
) -> float | None:
    """The absolute bound of what the server sends of a tensor: min(sqrt(3) alpha u factor / sqrt(K), rho range).

    A client's error is averaged away with those of the K - 1 others, the server's reaches all: hence the root of K.

    Args:
        update_rms: `mean_update_rms` of the clients.
        clients: that took part in the round (K).

    Returns, Raises:
        As `uplink_bound`.
    """
    raise_all(whole("clients", clients, 1))
    return uplink_bound(alpha, update_rms, value_range, rho=rho, factor=factor / math.sqrt(clients))


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
        _pairs_fault(len(update_rms), len(samples), "samples"),
        *(number(f"update_rms[{at}]", value, least=0, below=math.inf) for at, value in enumerate(update_rms)),
        *(whole(f"samples[{at}]", count, 0) for at, count in enumerate(samples)),
    )
    if (total := sum(samples)) == 0:
        raise ValueError(f"samples={list(samples)}: nobody has trained; there is no mean update")
    return math.fsum(value * count for value, count in zip(update_rms, samples, strict=True)) / total


def importance_factors(sensitivities: Mapping[str, float], sizes: Mapping[str, int]) -> dict[str, float]:
    """By which layers' bounds are multiplied: sqrt(h_mean / h), from 1/4 to 4; tight where the loss bends most.

    With errors of e^2 / 3 on average and a loss that grows by h e^2, h the diagonal of the Fisher information, these
    cost the fewest bits, sum n log(1 / e), at the loss that equal bounds cost, sum n h e^2; that is so where no factor
    is cut to its limits, with h_mean the mean over all elements. Choosing among a few settings instead of bounds, as in
    L-GreCo (arXiv:2210.17357), asks for dynamic programming.

    Args:
        sensitivities: mean squared gradient of each layer (h); 0 is as insensitive as factors go.
        sizes: elements of each layer (n).

    Raises:
        ValueError: layers differ, one has no elements, or a sensitivity is not finite or below 0.
    """
    raise_all(
        None if sensitivities.keys() == sizes.keys() else _layers_fault(sensitivities, sizes),
        *(number(f"sensitivities.{name}", h, least=0, below=math.inf) for name, h in sensitivities.items()),
        *(whole(f"sizes.{name}", size, 1) for name, size in sizes.items()),
    )
    elements = sum(sizes.values())
    # shares first: sums of squares of gradients times elements may overflow
    mean = math.fsum(h * (sizes[name] / elements) for name, h in sensitivities.items())
    if mean == 0:
        return dict.fromkeys(sensitivities, 1.0)
    return {name: _clipped(mean, h) for name, h in sensitivities.items()}


def client_factors(accuracies: Sequence[float], strength: float) -> list[float]:
    """By which clients' bounds are multiplied: exp(-strength (mean - own)), tight for those that do worse than others.

    Ours: FedEFsz (Zhang et al., IEEE TPDS 36(12), 2025) tunes the bound of each client for equal accuracy by a
    heuristic that is not public; this one shares its aim alone.

    Args:
        accuracies: of each client, in [0, 1].
        strength: 0: all alike. 5: a client ten points behind the mean has a bound of 0.61 of what it would have.

    Raises:
        ValueError: an accuracy or the strength is out of its range.
    """
    raise_all(
        number("strength", strength, least=0, most=100),
        *(number(f"accuracies[{at}]", value, least=0, most=1) for at, value in enumerate(accuracies)),
        None if accuracies else "accuracies=[]: must be those of one client at least",
    )
    mean = math.fsum(accuracies) / len(accuracies)
    return [math.exp(-strength * (mean - own)) for own in accuracies]


def _clipped(mean: float, sensitivity: float) -> float:
    if sensitivity * MOST_FACTOR**2 <= mean:
        return MOST_FACTOR
    return max(LEAST_FACTOR, math.sqrt(mean / sensitivity))


def _pairs_fault(values: int, others: int, named: str) -> str | None:
    return None if values == others else f"{named}: {others} of them, for {values} clients"


def _layers_fault(sensitivities: Mapping[str, float], sizes: Mapping[str, int]) -> str:
    apart = sorted(sensitivities.keys() ^ sizes.keys())
    return f"sensitivities and sizes must be of the same layers; in one of them alone: {', '.join(apart)}"
