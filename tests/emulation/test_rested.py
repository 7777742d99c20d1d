"""A link that has rested takes its time for each byte, as one that is full does."""

from __future__ import annotations

import statistics

from tests.emulation.inside_rested import DATAGRAMS, TIMES
from tests.emulation.support import run_inside

RATE_BIT_S, FRAME_BYTES = 200e6, 1514


def test_what_comes_after_a_rest_takes_the_links_time(machine_lock: None) -> None:
    bursts = run_inside("inside_rested.py", "topo.rate='200 Mbit/s'", "topo.rtt='20 ms'", "topo.lan_rate='1 Gbit/s'")
    assert [len(burst) for burst in bursts] == [DATAGRAMS] * TIMES
    # a delay line that is held up lets go of several at once; a sender that is takes longer
    took_s = statistics.median(burst[-1] - burst[0] for burst in bursts)
    assert took_s > 0.9 * (DATAGRAMS - 1) * 8 * FRAME_BYTES / RATE_BIT_S
