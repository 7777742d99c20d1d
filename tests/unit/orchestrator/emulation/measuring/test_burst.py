"""Gaps between arrivals are held against the time each unit takes at the link's rate."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import pytest

from testbed.orchestrator.emulation.measuring.burst import Burst, gap_errors
from testbed.orchestrator.emulation.measuring.endpoints import End, Link

FRAME_S = 1514 * 8 / 100e6


def arrivals(gaps_s: list[float], size_bytes: int = 1472) -> list[tuple[int, int]]:
    at_ns, found = 0, [(0, size_bytes)]
    for gap_s in gaps_s:
        at_ns += round(gap_s * 1e9)
        found.append((at_ns, size_bytes))
    return found


def test_even_gaps_have_no_error() -> None:
    found = gap_errors(arrivals([FRAME_S] * 100), 100e6, 1472)
    assert found is not None
    assert found["unit_bytes"] == 1472
    assert found["error_p99_ratio"] == pytest.approx(0, abs=1e-4)


def test_one_gap_in_four_that_is_doubled_shows_in_the_upper_quantiles_alone() -> None:
    found = gap_errors(arrivals([FRAME_S, FRAME_S, FRAME_S, 2 * FRAME_S] * 50), 100e6, 1472)
    assert found is not None
    assert found["error_p50_ratio"] == pytest.approx(0, abs=1e-4)
    assert found["error_p90_ratio"] == pytest.approx(1, abs=1e-4)


def test_a_super_packet_takes_as_long_as_its_frames() -> None:
    found = gap_errors(arrivals([44 * FRAME_S] * 100, 44 * 1472), 100e6, 1472)
    assert found is not None
    assert found["error_p99_ratio"] == pytest.approx(0, abs=1e-4)


def test_a_few_arrivals_say_nothing() -> None:
    assert gap_errors(arrivals([FRAME_S] * 10), 100e6, 1472) is None


@pytest.mark.parametrize(
    ("rate_bit_s", "limit_bytes", "segments"),
    [(2.5e9, 1_514_000, 44), (16.7e6, 1_514_000, 1), (250e6, 1_514_000, 21), (2.5e9, 260_000, 11), (1e5, 8000, 1)],
)
def test_many_units_fit_into_a_burst_and_into_the_queue(rate_bit_s: float, limit_bytes: int, segments: int) -> None:
    source = cast(End, SimpleNamespace(rate_bit_s=rate_bit_s, limit_bytes=limit_bytes, segment_bytes=1472))
    assert Burst(cast(Link, None), source, source, 0.2).unit_bytes == segments * 1472


def test_packets_of_a_burst_are_no_larger_than_the_link_carries() -> None:
    frame_s = (548 + 42) * 8 / 100e6
    found = gap_errors(arrivals([2 * frame_s] * 100, 2 * 548), 100e6, 548)
    assert found is not None and found["error_p99_ratio"] == pytest.approx(0, abs=1e-4)
    source = cast(End, SimpleNamespace(rate_bit_s=2.5e9, limit_bytes=1_514_000, segment_bytes=548))
    assert Burst(cast(Link, None), source, source, 0.2).unit_bytes == 44 * 548
