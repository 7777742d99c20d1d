"""The round trip that plain Mininet makes of ours, where the kernel has sch_netem."""

from __future__ import annotations

import pytest

from tests.emulation.plain_mininet import mn, require_pinged, shortest_round_trip_s

pytestmark = [pytest.mark.netem, pytest.mark.needs_root, pytest.mark.timeout(180)]


def test_it_is_the_one_asked_not_twice_or_half(machine_lock: None) -> None:
    done = mn("wan10m,lan_rate=1Gbit/s,workers=2", prompt="pingall\noregon_0 ping -c 8 -i 0.3 virginia_0\n")
    require_pinged(done, 2)
    # one slow core with a tick of 10 ms: late it may be, early never
    assert 0.067 <= shortest_round_trip_s(done) < 0.077
