"""Bursts and queues of rate limits, at every rate that is allowed."""

from __future__ import annotations

import pytest

from testbed.core.spec.link_profile import MAX_RATE_BIT_S, MIN_RATE_BIT_S, LinkProfile
from testbed.orchestrator.emulation.kernel import tc

FRAME_BYTES, SUPER_PACKET_BYTES = 1514, 2**16 + 14
RATES_BIT_S = [*(10 ** (exponent / 10) for exponent in range(40, 105)), MAX_RATE_BIT_S]
RTT_S = 0.067


def settings(rate_bit_s: float) -> tc.RateSettings:
    return tc.rate_settings(LinkProfile(rate_bit_s=rate_bit_s, delay_s=RTT_S / 2, source="test"), RTT_S)


def test_all_rates_are_looked_at() -> None:
    assert (RATES_BIT_S[0], RATES_BIT_S[-1]) == pytest.approx((MIN_RATE_BIT_S, MAX_RATE_BIT_S))


def test_a_burst_bridges_a_millisecond_and_a_queue_a_round_trip() -> None:
    for rate_bit_s in RATES_BIT_S:
        found = settings(rate_bit_s)
        assert found.burst_bytes >= max(rate_bit_s / 8 * 1e-3, FRAME_BYTES)
        assert found.limit_bytes >= max(rate_bit_s / 8 * RTT_S, found.burst_bytes)


def test_at_1_gbit_s_and_above_whole_super_packets_fit_into_a_burst() -> None:
    rates_bit_s = [rate for rate in RATES_BIT_S if rate >= 1e9]
    assert len(rates_bit_s) == 16
    assert min(settings(rate_bit_s).burst_bytes for rate_bit_s in rates_bit_s) >= SUPER_PACKET_BYTES
