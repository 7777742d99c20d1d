from __future__ import annotations

import itertools
import random
import statistics
from typing import Any

import pytest

from testbed.core.spec.link_profile import JITTER_DISTRIBUTIONS, LinkProfile
from testbed.orchestrator.emulation.shapers.delay import Delay, least_s, mean_doubt_s, spread_at

SHARES = [(index + 0.5) / 100_000 for index in range(100_000)]
DEVIATION = {"uniform": 3**-0.5, "normal": 1.0, "pareto": 1.0}


@pytest.mark.parametrize("distribution", JITTER_DISTRIBUTIONS)
def test_spreads_have_mean_0_their_deviation_and_no_tail_past_the_cut(distribution: str) -> None:
    values = [spread_at(distribution, share) for share in SHARES]
    assert statistics.fmean(values) == pytest.approx(0, abs=1e-4)
    assert statistics.pstdev(values) == pytest.approx(DEVIATION[distribution], rel=1e-3)
    assert values == sorted(values)
    assert max(values) <= (1 if distribution == "uniform" else 4)
    assert Delay(0.03, 0.005, distribution).deviation_s == pytest.approx(0.005 * DEVIATION[distribution])


def test_the_pareto_has_its_long_tail_towards_late() -> None:
    assert spread_at("pareto", 0.5) < 0 < 3.9 < spread_at("pareto", 0.999)
    assert spread_at("pareto", 1e-9) > -1


@pytest.mark.parametrize("distribution", JITTER_DISTRIBUTIONS)
def test_the_least_of_independent_draws_lies_in_its_bounds(distribution: str) -> None:
    way, source = Delay(0.03, 0.005, distribution), random.Random(1)
    for probes, ways in itertools.product((5, 240), ([way], [way, way])):
        low_s, high_s = least_s(ways, probes, 0.5 * probes)
        for _ in range(200):
            found_s = min(sum(way.quantile_s(source.random()) for way in ways) for _ in range(probes))
            assert low_s <= found_s <= high_s
    assert least_s([way], 240, 120)[1] < 0.03 < least_s([way], 5, 0.01)[1]
    assert least_s([way, way], 5, 0.01)[0] >= 0.06 - 2 * 4 * 0.005


def test_without_jitter_the_least_is_the_delay() -> None:
    way = Delay(0.03, 0.0, "pareto")
    assert least_s([way, way], 10, 1.0) == (0.06, 0.06)
    assert mean_doubt_s((way, way), 20, 0.2) == 0


def test_probes_close_in_time_tell_less_of_the_mean() -> None:
    way = Delay(0.03, 0.005, "normal")
    assert way.independent(20, 100.0) == 20
    assert way.independent(20, 0.64) == pytest.approx(10)
    assert way.independent(20, 0.001) == 1
    assert mean_doubt_s((way, way), 20, 100.0) == pytest.approx(4 * (2 * 0.005**2 / 20) ** 0.5)
    assert mean_doubt_s((way, Delay(0.03, 0.0, "normal")), 20, 100.0) == pytest.approx(4 * 0.005 / 20**0.5)


def test_packets_that_overtake_count_where_means_are_compared() -> None:
    fields: dict[str, Any] = {"rate_bit_s": 1e8, "delay_s": 0.03, "reorder_ratio": 0.1, "source": "test"}
    assert Delay.of(LinkProfile(**fields)).mean_s == 0.03  # a median does not feel them
    way, source = Delay.of(LinkProfile(**fields, jitter_s=0.005)), random.Random(1)
    drawn = [0.0 if source.random() < 0.1 else way.quantile_s(source.random()) for _ in range(100_000)]
    assert way.mean_s == pytest.approx(statistics.fmean(drawn), rel=0.01)
    assert way.deviation_s == pytest.approx(statistics.pstdev(drawn), rel=0.01)


def test_a_normal_tail_below_0_moves_the_mean() -> None:
    way, source = Delay(0.005, 0.005, "normal"), random.Random(1)
    found = statistics.fmean(max(0.0, source.gauss(0.005, 0.005)) for _ in range(200_000))
    assert way.mean_s == pytest.approx(found, abs=5e-5)
    assert way.mean_s > 0.0054
    assert Delay(0.03, 0.005, "normal").mean_s == pytest.approx(0.03, abs=1e-8)
