"""Links that are up are given the terms of another dilation: all of them, read back and measured."""

from __future__ import annotations

import statistics

import pytest

from tests.emulation.support import run_inside

DILATIONS = (3.0, 1.5)
RATE_BIT_S, RTT_S = 100e6, 0.067
NEAR = 0.1
"""Of what is asked, on a machine that others use; test_links.py measures links for as long as it takes."""


def test_links_follow_a_dilation_up_and_down(machine_lock: None) -> None:
    stages = run_inside("inside_retime.py", "nfqueue", *map(str, DILATIONS))
    for k, found in zip(DILATIONS, stages, strict=True):
        for port in found["ports"]:
            for key, asked in (("rate_bit_s", port["asked"]["rate_bit_s"]), ("delay_s", port["asked"]["delay_s"])):
                if key in port["read_back"]:
                    assert port["read_back"][key] == pytest.approx(asked, rel=1e-3), (k, port["name"], key)
        wan = [port for port in found["ports"] if port["wan"]]
        assert [port["asked"]["rate_bit_s"] for port in wan] == [pytest.approx(RATE_BIT_S)] * 2
        assert sum(port["asked"]["delay_s"] for port in wan) == pytest.approx(RTT_S)
        (name,) = {port["name"] for port in wan}
        assert statistics.median(found["rtt_s"][name]) == pytest.approx(k * RTT_S, rel=NEAR)
        for burst in found["bursts"]:
            assert burst["rate_bit_s"] == pytest.approx(RATE_BIT_S / k, rel=NEAR)
        assert {time_out_s for node in found["time_outs_s"] for time_out_s in node} == {round(0.2 * k, 3)}
