"""A queue like tbf's holds what the rate carries in its latency and a burst, and drops the rest."""

from __future__ import annotations

import pytest

from tests.emulation.inside_queue import DATAGRAM_BYTES, HEADERS_BYTES
from tests.emulation.support import run_inside

RATE_BIT_S, BURST_BYTES, LATENCY_S = 10e6, 32_000, 0.050
QUEUE = "{burst: 32 kB, latency: 50 ms}"
PLACES = {
    "card": [
        "topo=star",
        "workers=2",
        "topo.lan_rate='10 Mbit/s'",
        f"topo.lan_queue={QUEUE}",
        "topo.rate='100 Mbit/s'",
    ],
    "switch": ["topo=star", "workers=2", "topo.rate='10 Mbit/s'", f"topo.queue={QUEUE}", "topo.lan_rate='1 Gbit/s'"],
}
LATE_S = 0.25
"""A busy machine may read the last datagram so late."""


@pytest.mark.parametrize("place", PLACES)
def test_a_burst_fills_it_and_the_rest_is_dropped(place: str, machine_lock: None) -> None:
    found = run_inside("inside_queue.py", place, "topo.rtt=0s", *PLACES[place])
    limit_bytes = RATE_BIT_S / 8 * LATENCY_S + BURST_BYTES
    assert found["read_back"]["limit_bytes"] == limit_bytes
    assert found["read_back"]["burst_bytes"] == pytest.approx(BURST_BYTES, rel=0.02)
    assert found["arrived"] + found["drops"] == found["sent"]
    frame_bytes = DATAGRAM_BYTES + HEADERS_BYTES
    held = (BURST_BYTES + limit_bytes) / frame_bytes
    drained = RATE_BIT_S / 8 * LATE_S / frame_bytes
    assert held - 2 <= found["arrived"] <= held + drained
    least_s = (found["arrived"] * frame_bytes - BURST_BYTES) * 8 / RATE_BIT_S
    assert 0.9 * least_s <= found["last_s"] <= least_s + LATE_S
