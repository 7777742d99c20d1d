"""Jitter of a delay line: mean and spread as asked however dense the packets are, in order, the same from one seed."""

from __future__ import annotations

import math
import statistics
from typing import Any

import pytest

from testbed.core.spec.link_profile import JITTER_DISTRIBUTIONS, LinkProfile
from testbed.orchestrator.emulation.shapers.due_times import DueTimes
from testbed.orchestrator.emulation.shapers.impairments import VaryingDelay

DELAY_S, JITTER_S = 0.03, 0.005
DEVIATION_S = {"uniform": JITTER_S / math.sqrt(3), "normal": JITTER_S, "pareto": JITTER_S}
DENSE_S, SPACED_S = 0.12e-3, 0.05
"""A frame's time at 100 Mbit/s; further apart than what jitter draws together."""


def profile(distribution: str = "uniform", **fields: Any) -> LinkProfile:
    jitter = {"delay_s": DELAY_S, "jitter_s": JITTER_S, "jitter_distribution": distribution}
    return LinkProfile(rate_bit_s=1e8, source="test", **{**jitter, **fields})


def delays_s(distribution: str, every_s: float, packets: int, seed: int = 3) -> tuple[list[float], dict[str, Any]]:
    """As packets get them that arrive so often, with what the line reports of them."""
    varying, due_times = VaryingDelay(profile(distribution), seed), DueTimes(0.0)
    found = []
    last_due_s = 0.0
    for packet in range(packets):
        arrived_s = packet * every_s
        due_s = due_times.due_s(arrived_s, varying.at(arrived_s))
        assert due_s >= last_due_s, "order"
        last_due_s = due_s
        found.append(due_s - arrived_s)
    return found, due_times.figures()


@pytest.mark.parametrize(("every_s", "packets"), [(DENSE_S, 400_000), (SPACED_S, 20_000)])
@pytest.mark.parametrize("distribution", JITTER_DISTRIBUTIONS)
def test_mean_and_spread_are_as_asked_at_any_density(distribution: str, every_s: float, packets: int) -> None:
    found, figures = delays_s(distribution, every_s, packets)
    deviation_s = DEVIATION_S[distribution]
    # 48 s of a dense stream hold some 750 independent delays, 1000 s of a spaced one 15 600
    allowed_s = 4 * deviation_s / math.sqrt(packets * every_s / (1.6 * 8 * JITTER_S))
    assert abs(statistics.fmean(found) - DELAY_S) < allowed_s
    assert statistics.pstdev(found) == pytest.approx(deviation_s, rel=0.1 if every_s == DENSE_S else 0.03)
    assert figures["delay_mean_s"] == pytest.approx(statistics.fmean(found))
    assert figures["delay_deviation_s"] == pytest.approx(statistics.pstdev(found), rel=1e-6)
    if distribution == "uniform":
        assert min(found) >= DELAY_S - JITTER_S and max(found) <= DELAY_S + JITTER_S


def test_a_delay_belongs_to_the_seed_and_the_time_not_to_the_packets() -> None:
    times_s = [index * 1.7e-3 for index in range(1000)]
    all_of_them = VaryingDelay(profile("normal"), 7)
    seen = {at_s: all_of_them.at(at_s) for at_s in times_s}
    every_tenth = VaryingDelay(profile("normal"), 7)
    assert all(every_tenth.at(at_s) == seen[at_s] for at_s in times_s[::10])
    assert [VaryingDelay(profile("normal"), 8).at(at_s) for at_s in times_s] != list(seen.values())


def test_a_change_of_the_delay_alone_keeps_the_jitter() -> None:
    varying = VaryingDelay(profile(), 7)
    before_s = varying.at(1.23)
    varying.set(profile(delay_s=0.08))
    assert varying.at(1.23) - before_s == pytest.approx(0.05)
    varying.set(profile(jitter_s=0.0))
    assert {varying.at(second) for second in range(5)} == {DELAY_S}


def test_no_delay_is_below_0() -> None:
    varying = VaryingDelay(profile("normal", delay_s=JITTER_S), 1)
    assert min(varying.at(second / 10) for second in range(5000)) == 0


def test_an_hour_without_a_packet_costs_nothing() -> None:
    varying = VaryingDelay(profile(jitter_s=1e-5), 1)
    varying.at(0.0)
    assert abs(varying.at(3600.0) - DELAY_S) <= 1e-5
