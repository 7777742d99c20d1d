"""Which rates and round trips netem reaches here; written as rates.json where $LONGHAUL_NETEM_OUT says where."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from tests.netem.support import run_inside

pytestmark = [pytest.mark.netem, pytest.mark.needs_root, pytest.mark.timeout(300)]

POINTS = [(rate, rtt) for rate in (10e6, 50e6, 100e6, 200e6, 500e6, 1e9) for rtt in (2e-3, 67e-3, 300e-3)]
CARRIED_BIT_S = (10e6, 200e6)
"""What even user-mode Linux must carry, in packets and in super-packets; all points are in the table."""
TRIES = 3
"""The machine is shared: one disturbed measurement says nothing about the link, three do."""


@pytest.fixture(scope="module")
def table(machine_lock: None) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = run_inside("inside_rates.py", json.dumps(POINTS), timeout_s=280)
    for point in found:
        print(_row(point))
    if out := os.environ.get("LONGHAUL_NETEM_OUT"):
        (Path(out) / "rates.json").write_text(json.dumps({"kernel": os.uname().release, "points": found}, indent=2))
    return found


def _row(point: dict[str, Any]) -> str:
    rates = ", ".join("-" if rate is None else f"{rate / 1e6:.2f}" for rate in point["measured_rate_bit_s"])
    trips = [point["measured_rtt_s"], point["measured_rtt_max_s"]]
    said = ", ".join("-" if seconds is None else f"{seconds * 1e3:.2f}" for seconds in trips)
    return f"{point['rate_bit_s'] / 1e6:g} Mbit/s ({point['unit']}): {rates}; {point['rtt_s'] * 1e3:g} ms: {said}"


def _again(wrong: list[dict[str, Any]]) -> list[dict[str, Any]]:
    points = [(point["rate_bit_s"], point["rtt_s"]) for point in wrong]
    return list(run_inside("inside_rates.py", json.dumps(points), timeout_s=280)) if points else []


def _has_rate(point: dict[str, Any]) -> bool:
    asked = point["rate_bit_s"]
    return all(rate is not None and abs(rate / asked - 1) < 0.02 for rate in point["measured_rate_bit_s"])


def _has_round_trip(point: dict[str, Any]) -> bool:
    asked, found = point["rtt_s"], point["measured_rtt_s"]
    return found is not None and abs(found - asked) < max(1e-3, 0.01 * asked)


def test_links_of_the_rates_it_carries_have_them(table: list[dict[str, Any]]) -> None:
    wrong = [point for point in table if point["rate_bit_s"] in CARRIED_BIT_S]
    assert len(wrong) == 6
    for _ in range(TRIES):
        wrong = [point for point in wrong if not _has_rate(point)]
        if not wrong:
            return
        wrong = _again(wrong)
    raise AssertionError([_row(point) for point in wrong])


def test_every_link_has_its_round_trip(table: list[dict[str, Any]]) -> None:
    wrong = table
    for _ in range(TRIES):
        wrong = [point for point in wrong if not _has_round_trip(point)]
        if not wrong:
            return
        wrong = _again(wrong)
    raise AssertionError([_row(point) for point in wrong])
