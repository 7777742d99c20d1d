"""The table of plain Mininet, with the points of another benchmark in it."""

from __future__ import annotations

from experiments.benchmarks.mininet_tclink import tables
from tests.unit.experiments.benchmarks.points import link_point


def test_plain_mininet_stands_beside_ours_at_its_rate() -> None:
    asked = {"bw_mbit_s": 100, "delay": None, "busy": True}
    result = {"burst_rate_bit_s": 98e6, "flow_rate_bit_s": 97e6, "goodput_bit_s": 9e7, "rtt_p50_s": 1e-5, "said": []}
    plain = {"asked": asked, "result": result, "is_disturbed": False, "others_cores": 0.0}
    ours = link_point()
    ours["asked"]["rtt_s"] = 0.0002
    row = tables.mininet_tclink([plain], [ours]).splitlines()[-1]
    assert row.startswith("| 100 | none | busy | -2.00 | -0.50 | -3.00 |")
