"""The table of netem: what plain Mininet is asked."""

from __future__ import annotations

from typing import Any

from experiments.benchmarks.netem import tables


def system(name: str, **result: Any) -> dict[str, Any]:
    asked = {"system": name, "rate_bit_s": 100e6, "rtt_s": 0.067}
    rates = {"filled_rate_bit_s": 99e6, "filled_rates_bit_s": [98e6, 100e6]}
    found = {**rates, "probes": 100, "rtt_p50_s": 0.068, "rtt_p99_s": 0.070, **result}
    return {"asked": asked, "result": found, "is_disturbed": False, "others_cores": 0.0}


def test_what_plain_mininet_is_asked_one_way_is_half_of_the_round_trip() -> None:
    *_, ours, plain = tables.netem([system("mininet", filled_rate_bit_s=None), system("longhaul")]).splitlines()
    assert ours == "| 100 Mbit/s | 67 ms | 33.5 ms | longhaul, netem | -1.00 | -2.00 to +0.00 | +1.000 / +3.000 | 100 |"
    assert plain.startswith("| 100 Mbit/s | 67 ms | 33.5 ms | Mininet, TCLink | - |")
