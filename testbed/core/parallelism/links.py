"""Links between ranks as a plan's costs take them: of a topology as asked for, and of what probes have found."""

from __future__ import annotations

import itertools
import statistics
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from testbed.core.parallelism.problem import LinkMatrix
from testbed.core.parameters import raise_all
from testbed.core.spec.paths import Paths, delay_s
from testbed.core.spec.topology import Topology

Pair = tuple[int, int]


def asked_links(topology: Topology) -> LinkMatrix:
    """As configured: the delays on the way summed, the least rate of the way, headers taken off.

    What a message costs besides, and what TCP leaves of a rate, is not known before it is tried. Of a path over several
    WAN links only the two regions at its ends are known, so that what it shares with other pairs of regions is not.
    """
    paths, ranks = Paths(topology), range(len(topology.nodes))

    def rate_bit_s(i: int, j: int) -> float:
        return min(link.profile.rate_bit_s / link.profile.wire_ratio for link in paths.between(i, j))

    return LinkMatrix(
        tuple(paths.regions),
        tuple(tuple(0.0 if i == j else delay_s(paths.between(i, j)) for j in ranks) for i in ranks),
        tuple(tuple(1.0 if i == j else rate_bit_s(i, j) for j in ranks) for i in ranks),
    )


@dataclass(frozen=True)
class Line:
    """What a message there and a few bytes back takes: 2 alpha and, of each byte, 8 / rate."""

    alpha_s: float
    rate_bit_s: float


_NONE = Line(0.0, 1.0)
"""Of a rank to itself, or of a region with one: nothing looks at it."""


def fitted(round_trips_s: Mapping[int, Sequence[float]]) -> Line:
    """The `straight` line through the medians: a small message's microseconds count as much as a large one's.

    Noise may leave a line that begins below 0, or falls: then latency is 0, or a byte takes what the largest message
    took for each of its own, latency included.

    Args:
        round_trips_s: by the bytes of the message; of a byte at least, and of two sizes.

    Raises:
        ValueError: there are fewer sizes, or a size was not tried.
    """
    raise_all(
        None if len(round_trips_s) > 1 else f"round trips of {len(round_trips_s)} sizes; a line needs two",
        *(None if tried else f"round trips of {size} bytes: none" for size, tried in round_trips_s.items()),
    )
    points = {size: statistics.median(tried) for size, tried in round_trips_s.items()}
    start_s, slope = straight(points)
    if slope <= 0:
        slope = points[max(points)] / max(points)
    return Line(max(0.0, start_s) / 2, 8 / slope)


def straight(points: Mapping[int, float]) -> tuple[float, float]:
    """Where the line of least squares begins, and how it rises: errors count by the share of the value that they are.

    Args:
        points: values above 0, at two places or more.
    """
    weights = {at: 1 / value**2 for at, value in points.items()}
    total = sum(weights.values())
    middle = sum(weight * at for at, weight in weights.items()) / total
    mean = sum(weight * points[at] for at, weight in weights.items()) / total
    spread = sum(weight * (at - middle) ** 2 for at, weight in weights.items())
    slope = sum(weight * (at - middle) * (points[at] - mean) for at, weight in weights.items()) / spread
    return mean - slope * middle, slope


def probe_rounds(regions: Sequence[str]) -> list[list[Pair]]:
    """Who sends to whom at the same time, round after round: one rank of each region to one of each other, and to
    another one of its own; in a round no region has part twice.

    So pairs of a round share no link, but where a way passes a third region.
    """
    members: dict[str, list[int]] = defaultdict(list)
    for rank, region in enumerate(regions):
        members[region].append(rank)
    across = [(a[0], b[0]) for a, b in itertools.permutations(members.values(), 2)]
    inside = [(ranks[0], ranks[1]) for ranks in members.values() if len(ranks) > 1]
    rounds: list[list[Pair]] = []
    for pair in (*across, *inside):
        busy = {regions[rank] for rank in pair}
        free = (one for one in rounds if not busy & {regions[rank] for other in one for rank in other})
        found = next(free, None)
        if found is None:
            rounds.append([pair])
        else:
            found.append(pair)
    return rounds


def probed_links(regions: Sequence[str], lines: Mapping[Pair, Line]) -> LinkMatrix:
    """Any pair of ranks has the line that was found between their regions, the median of several.

    Raises:
        ValueError: there is none between two of them.
    """
    between: dict[tuple[str, str], list[Line]] = defaultdict(list)
    for (i, j), line in lines.items():
        between[regions[i], regions[j]].append(line)
    asked = dict.fromkeys((regions[i], regions[j]) for i, j in itertools.permutations(range(len(regions)), 2))
    raise_all(*(f"lines: no pair from {a} to {b}; probe one" for a, b in asked if (a, b) not in between))
    typical = {pair: _median(between[pair]) for pair in asked}
    return LinkMatrix.of_regions(
        regions,
        lambda a, b: typical.get((a, b), _NONE).alpha_s,
        lambda a, b: typical.get((a, b), _NONE).rate_bit_s,
    )


def links_to_json(links: LinkMatrix) -> dict[str, Any]:
    return {
        "regions": list(links.regions),
        "alpha_s": [list(row) for row in links.alpha_s],
        "rate_bit_s": [list(row) for row in links.rate_bit_s],
    }


def links_from_json(data: Mapping[str, Any]) -> LinkMatrix:
    """
    Raises:
        ValueError: it is none.
    """
    try:
        rows = ([tuple(map(float, row)) for row in data[name]] for name in ("alpha_s", "rate_bit_s"))
        return LinkMatrix(tuple(map(str, data["regions"])), *(tuple(row) for row in rows))
    except (KeyError, TypeError) as error:
        raise ValueError(f"not links between ranks: {type(error).__name__}: {error}") from error


def _median(lines: Sequence[Line]) -> Line:
    return Line(statistics.median(line.alpha_s for line in lines), statistics.median(line.rate_bit_s for line in lines))
