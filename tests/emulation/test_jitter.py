"""Jitter by the delay line is what was asked: far apart by the arrival of probes, on a full link by its own record."""

from __future__ import annotations

import math
import statistics
from itertools import pairwise
from typing import Any

import pytest

from tests.emulation.support import run_inside

DELAY_S, JITTER_S = 0.0335, 0.002
MEMORY_S = 1.6 * 8 * JITTER_S
TRIES = 4


def over_packets(lines: list[dict[str, Any]]) -> tuple[int, float, float]:
    """Packets, and mean and deviation of their delays, while the link was filled."""
    full = [
        (later["packets"] - before["packets"], later["delay_mean_s"], later["delay_deviation_s"])
        for before, later in pairwise(lines)
        if later["packets"] - before["packets"] > 100
    ]
    packets = sum(count for count, _, _ in full)
    mean_s = sum(count * mean for count, mean, _ in full) / packets
    square = sum(count * (deviation**2 + mean**2) for count, mean, deviation in full) / packets
    return packets, mean_s, math.sqrt(square - mean_s**2)


@pytest.mark.timeout(600)
def test_mean_and_spread_of_a_normal_jitter_spaced_and_dense(machine_lock: None) -> None:
    wrong: list[str] = []
    for _ in range(TRIES):
        found = run_inside("inside_jitter.py", "topo.jitter=2 ms", "topo.jitter_distribution=normal")
        probes = found["delays_s"]
        assert len(probes) == 120
        packets, mean_s, deviation_s = over_packets(found["delay_lines"])
        assert packets > 1000
        independent = {"probes": len(probes) * 0.016 / MEMORY_S, "a full link": 6 * 0.8 / MEMORY_S}
        seen = {
            "probes": (statistics.fmean(probes), statistics.stdev(probes)),
            "a full link": (mean_s, deviation_s),
        }
        wrong = [fault for fault in found["faults"] if "asked a " in fault]
        for what, (mean, deviation) in seen.items():
            allowed = 4 / math.sqrt(independent[what])
            if abs(mean - DELAY_S) > allowed * JITTER_S + 5e-4 or abs(deviation / JITTER_S - 1) > allowed:
                wrong.append(f"{what}: mean {mean}, deviation {deviation}")
        if not wrong:
            return
    raise AssertionError(wrong)
