"""The table of set-up: how long networks take to come up and go down."""

from __future__ import annotations

from collections.abc import Sequence

from experiments.common.tables import Found, by, grouped, median, number, table


def set_up(points: Sequence[Found]) -> str:
    groups = grouped(points, "nodes", "system")
    marked = {by("nodes", "system")(point) for point in points if point["is_disturbed"]}
    rows = []
    for (nodes, system), results in groups.items():
        up_s = median(results, "up_s")
        other = groups.get((nodes, "mininet"))
        times = median(other, "up_s") / up_s if other and system == "longhaul" else None
        rows.append(
            [
                str(nodes),
                system,
                str(len(results)),
                f"{up_s:.2f}",
                f"{median(results, 'down_s'):.2f}",
                f"{nodes / up_s:.0f}",
                number(times, ".0f"),
                "yes" if (nodes, system) in marked else "",
            ]
        )
    heads = ("nodes", "system", "of", "up, s", "down, s", "nodes/s", "times plain Mininet", "others disturbed")
    return table(heads, rows)
