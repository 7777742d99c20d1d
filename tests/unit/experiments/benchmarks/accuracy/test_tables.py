"""The table of links' accuracy: what it marks."""

from __future__ import annotations

from typing import Any

import pytest

from experiments.benchmarks.accuracy import tables
from tests.unit.experiments.benchmarks.points import link_point


@pytest.mark.parametrize(
    ("found", "faults"),
    [
        (link_point(), []),
        (link_point(burst_rate_bit_s=98.9e6), ["rate"]),
        (link_point(burst_rate_bit_s=None), ["rate"]),
        (link_point(rtt_p50_s=0.1011), ["median RTT"]),
        (link_point(rtt_p99_s=0.1011), ["p99 RTT"]),
        (link_point(rtt_p99_s=0.1011, busy=False), []),
        (link_point(probes=0), ["no probe"]),
    ],
)
def test_a_point_outside_its_target_is_marked(found: dict[str, Any], faults: list[str]) -> None:
    assert tables.accuracy_faults(found) == faults
    row = tables.accuracy([found]).splitlines()[-1]
    assert ("inside" in row) == (not faults)


@pytest.mark.parametrize(("goodput_bit_s", "steady"), [(95.6e6, True), (96.5e6, False), (None, False)])
def test_goodput_beyond_the_rate_is_no_figure(goodput_bit_s: float | None, steady: bool) -> None:
    row = tables.accuracy([link_point(goodput_bit_s=goodput_bit_s)]).splitlines()[-1]
    assert ("not steady" in row) == (not steady)
    assert ("95.6" in row) == steady
