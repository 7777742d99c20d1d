"""A stream that fills a link is sent in units that the link's limiter passes as they are."""

from __future__ import annotations

import pytest

from experiments.benchmarks.netem.measure import RATES_BIT_S
from experiments.benchmarks.netem.offered_load import unit_segments
from testbed.core.spec.link_profile import LinkProfile
from testbed.orchestrator.emulation.kernel import tc


@pytest.mark.parametrize("rate_bit_s", RATES_BIT_S)
@pytest.mark.parametrize("dilation", [1, 10])
def test_no_unit_is_cut_by_the_limiter(rate_bit_s: float, dilation: float) -> None:
    settings = tc.rate_settings(LinkProfile(rate_bit_s=rate_bit_s / dilation, source="test"), 0.0, dilation)
    assert unit_segments(rate_bit_s) * tc.FRAME_BYTES <= settings.most_unit_bytes


def test_a_unit_is_a_millisecond_of_the_rate_up_to_the_largest_super_packet() -> None:
    assert [unit_segments(rate) for rate in (1e6, 100e6, 1e9)] == [1, 8, 44]
