"""On kernels before 6.11 routes say TCP's least retransmission time-out: what this kernel makes of such routes."""

from __future__ import annotations

import pytest

from tests.emulation.support import run_inside


@pytest.mark.parametrize("asked_s", [0.4, 0.0])
def test_a_locked_metric_of_the_routes_is_the_least_time_out(machine_lock: None, asked_s: float) -> None:
    """Asked for 0: the routes say nothing, and the time-out is the built-in one."""
    found = run_inside("inside_least_time_out.py", str(asked_s))
    assert ("rto_min lock 400ms" in found["said"]) == bool(asked_s), found["said"]
    assert "congctl bbr" in found["said"]
    for name in ("local-0", "local-1"):
        assert found["read_back"][name] == [asked_s or None]
    least_ms = 1000 * asked_s or 200
    assert least_ms <= found["time_out_ms"] < least_ms + 150  # and the round trip, on a machine that others use too
