"""Losses, duplicates: drawn as asked, and again the same from the same seed."""

from __future__ import annotations

import statistics
from typing import Any

import pytest

from testbed.core.spec.link_profile import LinkProfile
from testbed.orchestrator.emulation.shapers.impairments import Impairments

PACKETS = 200_000
FIVE_DEVIATIONS = 5


def profile(**fields: Any) -> LinkProfile:
    return LinkProfile(rate_bit_s=1e8, delay_s=0.02, source="test", **fields)


def losses(link: LinkProfile, seed: int = 1) -> list[bool]:
    fate = Impairments(link, seed)
    return [fate.is_lost() for _ in range(PACKETS)]


def bursts(lost: list[bool]) -> list[int]:
    """Lengths of unbroken losses."""
    found, length = [], 0
    for one in [*lost, False]:
        if one:
            length += 1
        elif length:
            found.append(length)
            length = 0
    return found


@pytest.mark.parametrize(
    "fields",
    [
        {"loss_ratio": 0.001},
        {"loss_ratio": 0.05},
        {"loss_ratio": 0.01, "loss_burst_packets": 8},
        {"loss_ratio": 0.1, "loss_burst_packets": 20, "bad_loss_ratio": 0.5, "good_loss_ratio": 0.01},
    ],
)
def test_mean_loss_is_what_was_asked_within_its_own_variance(fields: dict[str, float]) -> None:
    link = profile(**fields)
    lost = sum(losses(link))
    assert abs(lost - link.loss_ratio * PACKETS) < FIVE_DEVIATIONS * (link.loss_variance * PACKETS) ** 0.5


def test_bursts_have_the_length_asked_and_independent_losses_have_none() -> None:
    assert statistics.fmean(bursts(losses(profile(loss_ratio=0.2, loss_burst_packets=8)))) == pytest.approx(8, rel=0.07)
    assert statistics.fmean(bursts(losses(profile(loss_ratio=0.02)))) == pytest.approx(1 / 0.98, rel=0.02)


def test_the_same_seed_draws_the_same_and_another_does_not() -> None:
    link = profile(loss_ratio=0.01)
    assert losses(link, 7) == losses(link, 7)
    assert losses(link, 7) != losses(link, 8)


def test_without_impairments_nothing_is_drawn() -> None:
    fate = Impairments(profile(), 1)
    assert not (fate.is_lost() or fate.is_doubled() or fate.overtakes())
    assert fate.delay_s(3.0) == 0.02


def test_shares_of_duplicates_and_overtakers() -> None:
    fate = Impairments(profile(duplicate_ratio=0.02, reorder_ratio=0.1), 1)
    allowed = FIVE_DEVIATIONS * (0.1 * 0.9 * PACKETS) ** 0.5
    assert abs(sum(fate.is_doubled() for _ in range(PACKETS)) - 0.02 * PACKETS) < allowed
    assert abs(sum(fate.overtakes() for _ in range(PACKETS)) - 0.1 * PACKETS) < allowed


def test_a_change_takes_effect_with_the_next_packet() -> None:
    fate = Impairments(profile(), 1)
    fate.set(profile(loss_ratio=0.999999, jitter_s=0.005))
    assert fate.is_lost()
    assert len({fate.delay_s(second) for second in range(10)}) == 10
