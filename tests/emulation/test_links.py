"""Links are what was asked, measured: with the cores free, and with twice as many busy processes as cores."""

from __future__ import annotations

import statistics

import pytest

from tests.emulation.support import run_inside

RATES_BIT_S = {"wan1g": 1e9, "wan100m": 100e6, "wan10m": 10e6}
RTT_S = 0.067
TRIES = 4
"""The machine is shared: one disturbed measurement says nothing about the link, four do."""


@pytest.mark.timeout(900)
@pytest.mark.parametrize("topo", RATES_BIT_S)
def test_a_wan_link_has_its_rate_and_round_trip_idle_and_busy(machine_lock: None, topo: str) -> None:
    wrong: list[str] = []
    for _ in range(TRIES):
        found = run_inside("inside_links.py", f"{topo}")
        wrong = []
        for stage in ("idle", "busy"):
            wan = [b for b in found[stage]["bursts"] if b["name"] == "oregon-virginia"]
            assert len(wan) == 2
            for burst in wan:
                assert burst["drops"] == 0
                if not burst["rate_bit_s"] or abs(burst["rate_bit_s"] / RATES_BIT_S[topo] - 1) > 0.02:
                    wrong.append(f"{stage}: {burst}")
            median_s = statistics.median(found[stage]["rtt_s"]["oregon-virginia"])
            if abs(median_s - RTT_S) > 1e-3:
                wrong.append(f"{stage}: round trip {median_s}")
        if not wrong:
            return
    raise AssertionError(wrong)


def test_loss_that_was_asked_is_what_the_delay_line_drops(machine_lock: None) -> None:
    found = run_inside("inside_links.py", "wan100m", "topo.loss=5%")
    last = {(e["name"], e["from"]): e for e in found["delay_lines"]}
    for event in last.values():
        assert event["packets"] > 1000
        # five standard deviations of a binomial count
        allowed = 5 * (0.05 * 0.95 / event["packets"]) ** 0.5
        assert abs(event["drops"] / event["packets"] - 0.05) < allowed
        assert event["queue_drops"] == 0
