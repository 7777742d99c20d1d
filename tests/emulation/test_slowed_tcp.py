"""BBR and CUBIC whose seconds are emulated ones: their times are as long as a run is slow."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.emulation.support import run_inside


@pytest.fixture(scope="module")
def found(machine_lock: None) -> Any:
    found = run_inside("inside_slowed_tcp.py", json.dumps({"bbr": [0.1, 100], "cubic": [0.1, 0.05]}))
    if "lack" in found:
        pytest.skip(found["lack"])
    return found


def test_bbrs_pauses_come_by_emulated_seconds(found: Any) -> None:
    """Every second of the wall at a tenth, every 1,000 at a hundred: a flow of four seconds sees some, or none."""
    assert found["pauses"]["0.1"] > 0 and found["pauses"]["100"] == 0


def test_cubics_window_grows_by_emulated_seconds(found: Any) -> None:
    """From a loss of 420 packets' window to the next it takes 12 emulated seconds, and four round trips of the wall."""
    longest_s = {dilation: max(growth["s"] for growth in grown) for dilation, grown in found["growths"].items()}
    assert 0.8 < longest_s["0.1"] < 1.6
    assert 1.4 < longest_s["0.1"] / longest_s["0.05"] < 2.3


def test_nothing_is_left(found: Any) -> None:
    assert found["left"] == []
