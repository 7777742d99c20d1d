"""Links are what was asked, measured: with the cores free, and with twice as many busy processes as cores."""

from __future__ import annotations

import statistics
import time
from typing import Any

import pytest

from tests.emulation.support import run_inside

RATES_BIT_S = {"wan1g": 1e9, "wan100m": 100e6, "wan10m": 10e6}
LINK = "oregon-virginia"
RTT_S = 0.067
TRIES, MORE_TRIES, PAUSE_S = 4, 8, 10.0
"""The machine is shared: one disturbed measurement says nothing about the link, four undisturbed ones do."""
STEAL_RATIO = 0.03
"""Of a core, taken by other machines. Links of 1 Gbit/s were right at 2 %, and up to 40 % low at 10 to 40 %."""


def disagreements(stage: str, found: dict[str, Any], rate_bit_s: float) -> dict[str, str]:
    """What was found beyond tolerance, by which measurement; the testbed has to have told each rate of them."""
    wrong = {}
    bursts = [burst for burst in found["bursts"] if burst["name"] == LINK]
    assert len(bursts) == 2
    for burst in bursts:
        assert burst["drops"] == 0
        if not burst["rate_bit_s"] or abs(burst["rate_bit_s"] / rate_bit_s - 1) > 0.02:
            wrong[f"{stage}, from {burst['from']}"] = f"{burst['rate_bit_s']} bit/s"
    told = [line for line in found["faults"] if line.startswith(f"link {LINK} from ") and "bit/s" in line]
    assert len(wrong) <= len(told), (wrong, told)
    median_s = statistics.median(found["rtt_s"][LINK])
    if abs(median_s - RTT_S) > 1e-3:
        wrong[f"{stage}, round trip"] = f"{median_s} s"
    return wrong


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("topo", RATES_BIT_S)
def test_a_wan_link_has_its_rate_and_round_trip_idle_and_busy(machine_lock: None, topo: str) -> None:
    never_right: dict[str, list[str]] | None = None
    undisturbed = 0
    for _ in range(MORE_TRIES):
        found = run_inside("inside_links.py", f"{topo}")
        wrong: dict[str, str] = {}
        for stage in ("idle", "busy"):
            wrong |= disagreements(stage, found[stage], RATES_BIT_S[topo])
        before = {key: [] for key in wrong} if never_right is None else never_right
        never_right = {key: [*before[key], wrong[key]] for key in before.keys() & wrong.keys()}
        if not never_right:
            return
        if any(found[stage]["steal_ratio"] > STEAL_RATIO for stage in ("idle", "busy")):
            time.sleep(PAUSE_S)
            continue
        undisturbed += 1
        if undisturbed == TRIES:
            break
    else:
        pytest.skip(f"other machines took cores in {MORE_TRIES - undisturbed} of {MORE_TRIES} tries; {never_right}")
    raise AssertionError(never_right)


def test_loss_that_was_asked_is_what_the_delay_line_drops(machine_lock: None) -> None:
    found = run_inside("inside_links.py", "wan100m", "topo.loss=5%")
    last = {(e["name"], e["from"]): e for e in found["delay_lines"]}
    for event in last.values():
        assert event["packets"] > 1000
        # five standard deviations of a binomial count
        allowed = 5 * (0.05 * 0.95 / event["packets"]) ** 0.5
        assert abs(event["drops"] / event["packets"] - 0.05) < allowed
        assert event["queue_drops"] == 0
