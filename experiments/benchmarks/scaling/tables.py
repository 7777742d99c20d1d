"""The table of data parallelism over workers: exposed communication against the closed form."""

from __future__ import annotations

from collections.abc import Sequence

from experiments.common.tables import RUN_HEADS, Found, by, disturbed, percent_off, run_cells, table


def scaling(points: Sequence[Found]) -> str:
    def row(point: Found) -> list[str]:
        result = point["result"]
        return [
            str(point["asked"]["workers"]) + disturbed(point),
            f"{result['step_s']:.3f}",
            f"{result['exposed_s']:.3f}",
            f"{result['closed_form_s']:.3f}",
            f"{result['exposed_s'] / result['closed_form_s']:.2f}",
            f"{result['sent_bytes'] / 1e6:.3f}",
            percent_off(result["sent_bytes"], result["theory_bytes"]),
            f"{result['wire_over_payload']:.3f}",
            *run_cells([result]),
        ]

    heads = (
        *("workers", "step, s", "exposed, s", "closed form, s", "exposed / closed form", "sent a worker, MB"),
        *("against theory: %", "wire / payload", *RUN_HEADS),
    )
    return table(heads, map(row, sorted(points, key=by("workers"))))
