"""The table of netem: the testbed's links and plain Mininet's at the same rates and round trips."""

from __future__ import annotations

from collections.abc import Sequence

from experiments.common.tables import Found, by, disturbed, number, percent_off, table
from testbed.core.units import format_rate, format_time

_SYSTEMS = {"longhaul": "longhaul, netem", "mininet": "Mininet, TCLink"}


def netem(points: Sequence[Found]) -> str:
    def row(point: Found) -> list[str]:
        asked, result = point["asked"], point["result"]
        rtt = asked["rtt_s"]
        errors = [
            number(None if result[key] is None else result[key] - rtt, "+.3f", 1e3)
            for key in ("rtt_p50_s", "rtt_p99_s")
        ]
        rates = result["filled_rates_bit_s"]
        spread = [percent_off(rate, asked["rate_bit_s"]) for rate in (rates[0], rates[-1])] if rates else ["-", "-"]
        return [
            format_rate(asked["rate_bit_s"]),
            format_time(rtt),
            format_time(rtt / 2),
            _SYSTEMS[asked["system"]],
            percent_off(result["filled_rate_bit_s"], asked["rate_bit_s"]),
            " to ".join(spread),
            " / ".join(errors),
            f"{result['probes']}{disturbed(point)}",
        ]

    heads = (
        *("rate", "RTT", "asked one way", "system", "rate, queue filled: %", "least to most: %"),
        *("RTT error p50 / p99, ms", "probes that came"),
    )
    return table(heads, map(row, sorted(points, key=by("rate_bit_s", "rtt_s", "system"))))
