"""tc as text and back: bursts choose the unit of traffic; what the kernel reports is held against what was asked."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from pyroute2.netlink.rtnl.tcmsg import tcmsg

from testbed.core.spec.link_profile import LinkProfile
from testbed.orchestrator.emulation.kernel import tc


def settings(rate_bit_s: float, rtt_s: float = 0.067, limit_bytes: int = 0) -> tc.RateSettings:
    profile = LinkProfile(rate_bit_s=rate_bit_s, delay_s=rtt_s / 2, limit_bytes=limit_bytes, source="test")
    return tc.rate_settings(profile, rtt_s)


@pytest.mark.parametrize(
    ("rate_bit_s", "burst_bytes", "limit_bytes", "unit", "most_unit_bytes"),
    [
        (10e6, 3_200, 83_750, "packet", 1514),
        (25e6, 4_000, 209_375, "packet", 1514),
        (50e6, 8_000, 418_750, "super-packet", 8_000),
        (100e6, 16_000, 837_500, "super-packet", 16_000),
        (1e9, 130_000, 8_375_000, "super-packet", 65_550),
        (2.5e9, 312_500, 20_937_500, "super-packet", 65_550),
    ],
)
def test_burst_queue_and_unit_follow_the_rate(
    rate_bit_s: float, burst_bytes: int, limit_bytes: int, unit: str, most_unit_bytes: int
) -> None:
    found = settings(rate_bit_s)
    assert (found.burst_bytes, found.unit, found.most_unit_bytes) == (burst_bytes, unit, most_unit_bytes)
    assert found.limit_bytes == pytest.approx(limit_bytes, abs=1)


@pytest.mark.parametrize("dilation", [1, 10])
@pytest.mark.parametrize("rate_bit_s", [10e6, 200e6, 5e9])
def test_a_burst_that_is_given_is_that_of_a_plain_tbf(rate_bit_s: float, dilation: float) -> None:
    profile = LinkProfile(rate_bit_s=rate_bit_s / dilation, limit_bytes=94_500, burst_bytes=32_000, source="test")
    found = tc.rate_settings(profile, 0.067, dilation)
    assert (found.burst_bytes, found.limit_bytes, found.unit) == (32_000, 94_500, "super-packet")
    assert found.most_unit_bytes == 32_000


@pytest.mark.parametrize("rate_bit_s", [10e6, 40e6, 200e6, 2e9])
def test_a_slowed_link_sends_the_same_bytes_as_one(rate_bit_s: float) -> None:
    profile = LinkProfile(rate_bit_s=rate_bit_s, delay_s=0.03, source="test")
    asked = tc.rate_settings(profile, 0.06)
    slowed = tc.rate_settings(profile.dilated(8), 0.48, dilation=8)
    assert slowed == dataclasses.replace(asked, rate_bit_s=rate_bit_s / 8)


def test_a_queue_holds_at_least_four_bursts_and_a_given_one_is_kept() -> None:
    assert settings(10e6, rtt_s=0).limit_bytes == 64_000
    assert settings(10e6, limit_bytes=50_000).limit_bytes == 50_000


def test_a_card_holds_what_its_host_hands_over_at_once() -> None:
    profile = LinkProfile(rate_bit_s=10e6, source="test")
    assert tc.rate_settings(profile, 0, 10, tc.card_queue_bytes(profile)).limit_bytes == 1_514_000
    given = dataclasses.replace(profile, limit_bytes=50_000)
    assert tc.rate_settings(given, 0, 10, tc.card_queue_bytes(profile)).limit_bytes == 50_000


@pytest.mark.parametrize("rate_bit_s", [1e6, 20e6, 50e6, 1e9])
def test_a_burst_holds_two_large_frames_which_are_never_cut(rate_bit_s: float) -> None:
    jumbo = LinkProfile(rate_bit_s=rate_bit_s, mtu_bytes=9001, source="test")
    found = tc.rate_settings(jumbo, 0.02)
    assert found.unit == "super-packet" and found.burst_bytes >= 2 * 9015
    assert tc.card_queue_bytes(jumbo) == 9_015_000
    usual = dataclasses.replace(jumbo, mtu_bytes=1500)
    assert tc.rate_settings(usual, 0.02) == tc.rate_settings(LinkProfile(rate_bit_s=rate_bit_s, source="test"), 0.02)


def answered(asked: tc.RateSettings) -> Any:
    """What a kernel that does as it is told would report: the request itself, decoded."""
    message = tcmsg(tc.tbf(10, asked).message)
    message.decode()
    return message


def test_the_kernels_answer_is_read_back_whole() -> None:
    for rate_bit_s in (1e4, 10e6, 100e6, 1e9, 1e10):
        found = tc.parse_tbf(answered(settings(rate_bit_s)))
        assert found is not None
        assert found.rate_bit_s == pytest.approx(rate_bit_s)
        assert tc.disagreement(settings(rate_bit_s), found) is None


@pytest.mark.parametrize(
    ("kept", "word"),
    [
        ({"rate_bit_s": 8e8}, "reports 800000000 bit/s"),
        ({"burst_bytes": 15_000}, "burst"),
        ({"limit_bytes": 1_000_000}, "queue"),
        ({"unit": "packet"}, "asked for super-packets to pass as one, kernel lets packets"),
    ],
)
def test_a_kernel_that_keeps_something_else_is_noticed(kept: dict[str, Any], word: str) -> None:
    found = tc.parse_tbf(answered(dataclasses.replace(settings(1e9), **kept)))
    assert word in (tc.disagreement(settings(1e9), found) or "")


def test_an_unshaped_interface_is_noticed() -> None:
    message = tcmsg()
    message["attrs"] = [("TCA_KIND", "noqueue")]
    assert tc.parse_tbf(message) is None
    assert tc.disagreement(settings(1e9), None) == "kernel reports no rate limit"
