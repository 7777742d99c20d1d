"""BBR whose seconds are emulated ones: its pauses come as rarely, and last as long, as a run is slow."""

from __future__ import annotations

import pytest

from tests.emulation.support import run_inside


def test_pauses_come_by_emulated_seconds_and_nothing_is_left(machine_lock: None) -> None:
    """Every second of the wall at a tenth, every 1,000 at a hundred: a flow of four seconds sees some, or none."""
    found = run_inside("inside_slowed_bbr.py", "0.1", "100")
    if "lack" in found:
        pytest.skip(found["lack"])
    assert found["pauses"]["0.1"] > 0 and found["pauses"]["100"] == 0
    assert found["left"] == []
