"""What the netem shaper does to packets, on a kernel that has sch_netem; `make test-netem` boots one."""

from __future__ import annotations

import json
import math
import statistics
from typing import Any

import pytest

from testbed.orchestrator.emulation.shapers.delay import spread_at
from tests.netem.support import run_inside

pytestmark = [pytest.mark.netem, pytest.mark.needs_root]

MANY = 20_000


def sent_over(profile: dict[str, Any], *phases: dict[str, Any]) -> list[dict[str, Any]]:
    """Of each phase: what arrived, what was read back and reported."""
    found = run_inside("inside_link.py", json.dumps({"profile": profile, "phases": phases}))
    assert found["events"] == ["delay_line"]
    return list(found["phases"])


def delays_s(phase: dict[str, Any]) -> list[float]:
    return [delay for _, delay in phase["arrived"]]


def numbers(phase: dict[str, Any]) -> list[int]:
    return [number for number, _ in phase["arrived"]]


def agree(found: float, asked: float, count: int) -> bool:
    """A share of `count`, within five standard deviations."""
    return abs(found - asked) <= 5 * math.sqrt(asked * (1 - asked) / count)


def test_delay_is_what_was_asked_and_can_be_changed_while_packets_flow() -> None:
    flow = {"count": 200, "interval_s": 0.005}
    phases = sent_over({"delay_s": 0.02}, flow, {**flow, "set": {"delay_s": 0.15}}, {**flow, "set": {"delay_s": 1e-4}})
    for phase, asked in zip(phases, (0.02, 0.15, 1e-4), strict=True):
        assert numbers(phase) == list(range(200))
        assert phase["read_back"]["delay_s"] == pytest.approx(asked)
        assert min(delays_s(phase)) >= asked
        assert statistics.median(delays_s(phase)) - asked < 1e-3
    assert phases[-1]["report"]["packets"] == 600
    assert phases[-1]["report"]["drops"] == phases[-1]["report"]["queue_drops"] == 0


def quantiles_as_drawn(found: list[float], distribution: str, jitter_s: float) -> list[str]:
    """What is wrong with the quantiles. The deviation would be that of the one packet that a busy machine delayed."""
    wrong = []
    for twentieth, excess_s in enumerate(statistics.quantiles(found, n=20), start=1):
        share = twentieth / 20
        by_chance = 4 * math.sqrt(share * (1 - share) / len(found))
        least, most = (spread_at(distribution, within) * jitter_s for within in (share - by_chance, share + by_chance))
        if not least - 2e-4 < excess_s < most + 5e-4:
            wrong.append(f"{share:.0%}: {excess_s * 1e3:.2f} ms, of {least * 1e3:.2f} to {most * 1e3:.2f}")
    return wrong


@pytest.mark.parametrize("distribution", ["uniform", "normal", "pareto"])
def test_jitter_has_its_distribution_and_reorders_nothing(distribution: str) -> None:
    jitter_s = 0.002
    profile = {"delay_s": 0.03, "jitter_s": jitter_s, "jitter_distribution": distribution}
    # 12 ms apart, no packet waits for the one before it: its delay is as drawn
    alone, crowd = sent_over(profile, {"count": 600, "interval_s": 0.012}, {"count": 5000})
    assert alone["read_back"]["keeps_order"]
    excess_s = [delay - 0.03 for delay in delays_s(alone)]
    assert not quantiles_as_drawn(excess_s, distribution, jitter_s)
    others = {"uniform", "normal", "pareto"} - {distribution}
    assert all(quantiles_as_drawn(excess_s, other, jitter_s) for other in others)
    assert numbers(alone) == list(range(600))
    assert numbers(crowd) == list(range(5000))


def test_random_loss_is_as_much_as_was_asked() -> None:
    (phase,) = sent_over({"delay_s": 0.005, "loss_ratio": 0.03}, {"count": MANY})
    lost = 1 - len(phase["arrived"]) / MANY
    assert agree(lost, 0.03, MANY)
    report = phase["report"]
    assert report["packets"] == MANY and report["drops"] == MANY - len(phase["arrived"])
    assert report["asked_drops"] == pytest.approx(0.03 * MANY)


def test_losses_in_bursts_have_their_mean_share_and_length() -> None:
    (phase,) = sent_over({"delay_s": 0.005, "loss_ratio": 0.05, "loss_burst_packets": 8}, {"count": MANY})
    assert phase["read_back"]["loss_burst_packets"] == pytest.approx(8, rel=1e-3)
    arrived = set(numbers(phase))
    bursts = runs_of([number not in arrived for number in range(MANY)])
    lost = sum(bursts)
    report = phase["report"]
    assert report["drops"] == lost
    assert abs(lost - report["asked_drops"]) < 5 * math.sqrt(report["asked_drops_variance"])
    # a burst's length is geometric with mean 8, its standard deviation sqrt(8 * 7)
    assert abs(statistics.fmean(bursts) - 8) < 5 * math.sqrt(8 * 7 / len(bursts))


def runs_of(flags: list[bool]) -> list[int]:
    """Lengths of the unbroken runs of true."""
    found, length = [], 0
    for flag in [*flags, False]:
        if flag:
            length += 1
        elif length:
            found.append(length)
            length = 0
    return found


def test_losses_outside_and_inside_of_bursts_add_up() -> None:
    profile = {
        "delay_s": 0.005,
        "loss_ratio": 0.1,
        "loss_burst_packets": 5,
        "bad_loss_ratio": 0.6,
        "good_loss_ratio": 0.02,
    }
    (phase,) = sent_over(profile, {"count": MANY})
    report = phase["report"]
    assert abs(report["drops"] - 0.1 * MANY) < 5 * math.sqrt(report["asked_drops_variance"])
    for field, asked in profile.items():
        assert phase["read_back"][field] == pytest.approx(asked, rel=1e-3)


def test_packets_are_doubled() -> None:
    (phase,) = sent_over({"delay_s": 0.005, "duplicate_ratio": 0.1}, {"count": MANY})
    doubled = len(phase["arrived"]) - len(set(numbers(phase)))
    assert agree(doubled / MANY, 0.1, MANY)
    assert set(numbers(phase)) == set(range(MANY))
    assert phase["report"]["doubled"] == doubled


def test_packets_overtake_others_where_asked_and_only_there() -> None:
    flow = {"count": 2000, "interval_s": 0.001}
    asked, not_asked = sent_over(
        {"delay_s": 0.02, "reorder_ratio": 0.05}, flow, {**flow, "set": {"reorder_ratio": 0.0}}
    )
    early = sum(delay < 0.01 for delay in delays_s(asked))
    assert agree(early / 2000, 0.05, 2000)
    assert numbers(asked) != sorted(numbers(asked))
    assert numbers(not_asked) == list(range(2000))


def test_a_direction_that_is_down_loses_all_and_counts_none_of_it() -> None:
    flow = {"count": 300, "interval_s": 0.002}
    before, down, after = sent_over(
        {"delay_s": 0.01, "duplicate_ratio": 0.1}, flow, {**flow, "down": True}, {**flow, "down": False}
    )
    assert set(numbers(before)) == set(range(300))
    assert not down["arrived"]
    assert set(numbers(after)) == set(range(300))
    assert after["report"]["packets"] == 600
    assert after["report"]["drops"] == 0


def test_all_packets_in_flight_are_held_which_netem_by_itself_would_not() -> None:
    profile = {"delay_s": 0.8, "loss_ratio": 0.0}
    ours, default = sent_over(profile, {"count": 2500}, {"count": 2500, "tc": ["netem", "delay", "800ms"]})
    assert numbers(ours) == list(range(2500))
    assert ours["report"]["queue_drops"] == 0 and ours["refusal"] is None
    assert len(default["arrived"]) == 1000
    assert default["report"]["queue_drops"] == 1500
    assert "asked limit_packets=" in default["refusal"]


def test_jitter_by_netem_itself_reorders_and_is_refused() -> None:
    (phase,) = sent_over(
        {"delay_s": 0.03, "jitter_s": 0.005},
        {"count": 1000, "interval_s": 0.001, "tc": ["netem", "delay", "30ms", "5ms", "limit", "20000"]},
    )
    assert numbers(phase) != sorted(numbers(phase))
    assert "would reorder" in phase["refusal"]


def test_a_qdisc_that_went_away_is_noticed() -> None:
    (phase,) = sent_over({"delay_s": 0.03}, {"count": 1, "tc": ["pfifo"]})
    assert phase["read_back"] is None
    assert "the kernel has none there" in phase["refusal"]


def test_a_loss_that_is_repeatable_or_said_not_to_be() -> None:
    profile = {"delay_s": 0.001, "loss_ratio": 0.1}
    first, second = (sent_over(profile, {"count": 2000})[0] for _ in range(2))
    assert first["read_back"]["seeded"] == (numbers(first) == numbers(second))
