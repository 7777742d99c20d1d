"""The table of losses: asked, counted by the shaper, and not arrived."""

from __future__ import annotations

from collections.abc import Sequence

from experiments.common.tables import Found, disturbed, number, table


def loss(points: Sequence[Found]) -> str:
    def row(point: Found) -> list[str]:
        asked, result = point["asked"], point["result"]
        burst = asked.get("loss_burst_packets")
        lost, sent = result["sent"] - result["arrived"], result["sent"]
        deviations = abs(lost / sent - result["asked_ratio"]) / result["deviation_ratio"]
        return [
            f"{result['asked_ratio'] * 100:g} %" + (f", bursts of {burst:g}" if burst else ""),
            str(sent),
            str(lost),
            f"{lost / sent * 100:.3f} %",
            str(result["shaper_drops"]),
            number(result["mean_lost_run_packets"]),
            f"{deviations:.1f}" + disturbed(point),
            f"{result['queue_drops']} / {result['shaper_queue_drops']}",
        ]

    heads = (
        *("asked", "sent", "did not arrive", "share", "dropped by the shaper", "lost in a row, mean"),
        *("standard deviations off", "dropped elsewhere: queue / shaper's room"),
    )
    return table(heads, map(row, points))
