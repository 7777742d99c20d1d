"""Flows of background traffic: the same for the same seed, of the asked mean size and load."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import pytest

from testbed.core.spec.schedule import Background
from testbed.orchestrator.emulation.traffic.arrivals import (
    LARGEST,
    SHAPE,
    flows,
    most_concurrent,
    smallest_ratio,
    wire_bytes,
)

TRAFFIC = Background(link="a-b", source="a", load_ratio=0.3, mean_flow_bytes=20_000, seed=5)
RATE_BIT_S = 50e6
MANY = 200_000
SIZE_VARIANCE = 4.94
"""Over the mean squared: 3 l^1.5 (h^0.5 - l^0.5) - 1 with l = 0.354 and h = 100."""


def first(traffic: Background, count: int) -> list[tuple[float, int]]:
    return list(itertools.islice(flows(traffic, RATE_BIT_S), count))


def test_the_same_seed_gives_the_same_flows_and_another_gives_others() -> None:
    assert first(TRAFFIC, 1000) == first(TRAFFIC, 1000)
    for other in (replace(TRAFFIC, seed=6), replace(TRAFFIC, source="b"), replace(TRAFFIC, link="b-c")):
        assert not set(first(TRAFFIC, 1000)) & set(first(other, 1000))


def test_the_first_flows_of_a_seed_stay_what_they_are() -> None:
    """Two versions of this program make the same traffic."""
    times, sizes = zip(*first(TRAFFIC, 3), strict=True)
    assert sizes == (10433, 25286, 9388)
    assert times == pytest.approx((0.004878697, 0.02253296, 0.03029858), abs=1e-9)


def test_a_link_twice_as_fast_has_the_same_sizes_in_half_the_time() -> None:
    fast = list(itertools.islice(flows(TRAFFIC, 2 * RATE_BIT_S), 100))
    for (slow_s, slow_bytes), (fast_s, fast_bytes) in zip(first(TRAFFIC, 100), fast, strict=True):
        assert slow_bytes == fast_bytes
        assert slow_s == pytest.approx(2 * fast_s)


def test_sizes_have_the_asked_mean_and_stay_within_their_bounds() -> None:
    sizes = [size for _, size in first(TRAFFIC, MANY)]
    mean = TRAFFIC.mean_flow_bytes
    assert sum(sizes) / MANY == pytest.approx(mean, rel=5 * math.sqrt(SIZE_VARIANCE / MANY))
    assert smallest_ratio() * mean - 1 <= min(sizes) < 1.01 * smallest_ratio() * mean
    assert 0.5 * LARGEST * mean < max(sizes) <= LARGEST * mean + 1


def test_sizes_are_pareto_distributed() -> None:
    """The largest distance between the distribution of the samples and the asked one (Kolmogorov-Smirnov)."""
    sizes = sorted(size / TRAFFIC.mean_flow_bytes for _, size in first(TRAFFIC, MANY))
    least = smallest_ratio()
    whole = 1 - (least / LARGEST) ** SHAPE
    distance = max(abs((i + 0.5) / MANY - (1 - (least / size) ** SHAPE) / whole) for i, size in enumerate(sizes))
    assert distance < 2 / math.sqrt(MANY)  # exceeded once in 1500 seeds


def test_arrivals_are_a_poisson_process() -> None:
    times = [0.0, *(t_s for t_s, _ in first(TRAFFIC, MANY))]
    gaps = [after - before for before, after in itertools.pairwise(times)]
    mean = sum(gaps) / MANY
    deviation = math.sqrt(sum((gap - mean) ** 2 for gap in gaps) / MANY)
    assert deviation == pytest.approx(mean, rel=0.02)
    assert sum(gap > mean for gap in gaps) / MANY == pytest.approx(math.exp(-1), abs=0.005)


@pytest.mark.parametrize("mean_flow_bytes", [1000, 20_000, 1_000_000])
def test_the_wire_carries_the_asked_share_of_the_capacity(mean_flow_bytes: int) -> None:
    found = first(replace(TRAFFIC, mean_flow_bytes=mean_flow_bytes), MANY)
    offered_bit_s = sum(wire_bytes(size) for _, size in found) * 8 / found[-1][0]
    assert offered_bit_s / RATE_BIT_S == pytest.approx(0.3, rel=5 * math.sqrt((SIZE_VARIANCE + 1) / MANY))


def test_a_long_fat_link_may_have_more_flows_open() -> None:
    assert most_concurrent(TRAFFIC, 1e6, 0.01) == 64
    assert 64 < most_concurrent(TRAFFIC, 100e6, 0.1) < most_concurrent(TRAFFIC, 200e6, 0.1) < 1024
    assert most_concurrent(TRAFFIC, 10e9, 0.3) == 1024
