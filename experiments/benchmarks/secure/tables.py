"""The table of secure sums: a round's time and bytes beside those of updates in the clear."""

from __future__ import annotations

from collections.abc import Sequence

from experiments.benchmarks.secure.measure import IN_THE_CLEAR, RATE_MBIT_S
from experiments.common.tables import Found, disturbed, number, table

_HEADS = (
    *("workload", "Mbit/s", "updates", "survivors", "round, s", "times", "shares, s", "recovery, s"),
    *("sent a round: MB", "shares, MB", "rows, MB", "answers, MB", "k", "verdict"),
)


def secure(points: Sequence[Found]) -> str:
    def order(point: Found) -> tuple[str, float]:
        drop = point["asked"]["drop"]
        return point["asked"]["workload"], -1.0 if drop is None else drop

    clear = {point["asked"]["workload"]: point["result"] for point in points if point["asked"]["drop"] is None}
    return table(_HEADS, [_row(point, clear.get(point["asked"]["workload"])) for point in sorted(points, key=order)])


def _row(point: Found, clear: Found | None) -> list[str]:
    asked, result = point["asked"], point["result"]
    drop = asked["drop"]
    megabytes = (number(result.get(f"{part}_bytes"), ".2f", 1e-6) for part in ("share", "masked", "answer"))
    times = "-" if clear is None else f"{result['step_s'] / clear['step_s']:.2f}"
    return [
        *(asked["workload"] + disturbed(point), str(RATE_MBIT_S[asked["workload"]])),
        IN_THE_CLEAR if drop is None else f"secure, {drop:.0%} drop out",
        *(number(result.get("survivors"), ".1f"), f"{result['step_s']:.3f}", times),
        *(number(result.get("shares_s"), ".3f"), number(result.get("recovery_s"), ".3f")),
        *(number(result["payload_bytes"], ".2f", 1e-6), *megabytes),
        *(f"{result['dilation']:g}", result["verdict"]),
    ]
