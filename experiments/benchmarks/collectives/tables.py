"""The table of collectives: WAN bytes against theory, time against gloo's."""

from __future__ import annotations

from collections.abc import Sequence

from experiments.common.tables import RUN_HEADS, Found, by, disturbed, number, run_cells, table


def collectives(points: Sequence[Found]) -> str:
    flat = {
        point["asked"]["workers"]: point["result"]["exposed_s"]
        for point in points
        if point["asked"]["algorithm"] == "gloo"
    }

    def row(point: Found) -> list[str]:
        asked, result = point["asked"], point["result"]
        base = flat.get(asked["workers"])
        return [
            str(asked["workers"]),
            asked["algorithm"] + disturbed(point),
            str(result["links_used"]),
            number(result["worst_error"], "+.2f", 100),
            number(result["idle_links_bytes"], ".2f", 1e-6),
            number(result["wan_bytes_step"], ".2f", 1e-6),
            f"{result['exposed_s']:.3f}",
            number(None if base is None else result["exposed_s"] / base, ".2f"),
            *run_cells([result]),
        ]

    heads = (
        *("workers", "algorithm", "WAN links used", "bytes of the worst link against theory: %"),
        *("on the others, MB", "WAN bytes a step, MB", "exposed, s", "time / gloo's", *RUN_HEADS),
    )
    return table(heads, map(row, sorted(points, key=by("workers", "algorithm"))))
