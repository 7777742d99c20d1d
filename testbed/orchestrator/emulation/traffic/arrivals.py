"""When the flows of background traffic begin and how large they are: pure arithmetic on a seed."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator

from testbed.core.spec.schedule import Background

SHAPE = 1.5
"""Of the Pareto distribution of sizes: few large flows carry most bytes."""
LARGEST = 100
"""Times the mean: no flow is larger. An unbounded one would take a run longer than any to show its mean."""
HEADER_BYTES = 66
"""Of a segment: Ethernet 14, IP 20, TCP 20, timestamps 12."""
SEGMENT_BYTES = 1448
"""What a frame of 1514 bytes carries."""
SYN_OPTION_BYTES = 8
"""What the first segment has more than others, each way."""
INITIAL_WINDOW_BYTES = 10 * SEGMENT_BYTES


def smallest_ratio() -> float:
    """The smallest size over the mean, such that the mean is right in spite of the largest.

    The mean of a Pareto distribution of shape 3/2 between L and H is 3L(1 - s)/(1 - s^3) with s^2 = L/H, which is
    3 s^2 H / (1 + s + s^2); solved for s.
    """
    mean = 1 / LARGEST  # over H
    s = (mean + math.sqrt(mean**2 + 4 * mean * (3 - mean))) / (2 * (3 - mean))
    return s**2 * LARGEST


def wire_bytes(size_bytes: float) -> float:
    """What a flow of this size puts on the wire in its own direction: handshake, headers, half an unfilled segment."""
    segments = size_bytes / SEGMENT_BYTES + 0.5
    return size_bytes + (2 + segments) * HEADER_BYTES + SYN_OPTION_BYTES


def flows_per_s(traffic: Background, rate_bit_s: float) -> float:
    """How many flows begin in a second, so that the wire carries the asked share of the capacity."""
    return traffic.load_ratio * rate_bit_s / 8 / wire_bytes(traffic.mean_flow_bytes)


def most_concurrent(traffic: Background, rate_bit_s: float, rtt_s: float) -> int:
    """How many unfinished flows are let be: more than that is overload.

    At least 64, and three times as many as slow start alone keeps open on an idle link, which on a long fat one are
    more. Beyond 1024 the generator itself would be what limits.
    """
    round_trips = 2 + math.log2(1 + traffic.mean_flow_bytes / INITIAL_WINDOW_BYTES)
    return min(max(64, math.ceil(3 * flows_per_s(traffic, rate_bit_s) * round_trips * rtt_s)), 1024)


def flows(traffic: Background, rate_bit_s: float) -> Iterator[tuple[float, int]]:
    """Without end: (t_s, size_bytes) of every flow, on the emulated clock, for a link of this emulated rate.

    Poisson arrivals, bounded Pareto sizes. The two directions of a link differ, though they have the same seed.
    """
    # `random()` alone is promised to give the same numbers in every version of Python
    chance = random.Random(f"{traffic.seed}/{traffic.link}/{traffic.source}").random
    per_s = flows_per_s(traffic, rate_bit_s)
    smallest_bytes = smallest_ratio() * traffic.mean_flow_bytes
    below_largest = 1 - (smallest_ratio() / LARGEST) ** SHAPE
    t_s = 0.0
    while True:
        t_s -= math.log(1 - chance()) / per_s
        yield t_s, round(smallest_bytes * (1 - chance() * below_largest) ** (-1 / SHAPE))
