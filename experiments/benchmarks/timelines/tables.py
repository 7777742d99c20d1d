"""The table of measured timelines: what paced workers take against the accelerator's measurements."""

from __future__ import annotations

from collections.abc import Sequence

from experiments.benchmarks.timelines.measure import MIN_PHASE_S, PHASES
from experiments.common.tables import Found, number, table


def timelines(points: Sequence[Found]) -> str:
    rows = [_row(point) for point in points]
    heads = (
        *("model", "precision", "batch", "scale", "of", "hooks slow it by: %", "host-limited", "worst phase: %"),
        *("worst phase of any length, us", "phases together: %"),
        *("gradients after 5 ms", "worst: %", "which", "beyond 2 %", "k", "verdict"),
    )
    return table(heads, rows)


def _row(point: Found) -> list[str]:
    asked, found = point["asked"], point["result"]
    measured, wanted = found["measured"], found["wanted"]
    errors = [measured[phase] / wanted[phase] - 1 for phase in PHASES if wanted[phase] > MIN_PHASE_S]
    seconds = [measured[phase] - wanted[phase] for phase in PHASES]
    return [
        asked["model"],
        asked["precision"],
        str(found["batch_size"]),
        str(found["scale"]),
        "a whole run" if asked["where"] == "run" else "one paced worker",
        number(found["hooks"] - 1, "+.1f", 100),
        "yes" if found["host_limited"] else "no",
        number(max(errors, key=abs, default=None), "+.2f", 100),
        number(max(seconds, key=abs), "+.0f", 1e6),
        number(sum(seconds) / sum(wanted.values()), "+.2f", 100),
        str(found.get("gradients", "")),
        number(found.get("worst_error"), "+.2f", 100),
        found.get("worst_gradient") or "",
        str(found.get("beyond", "")),
        f"{found['dilation']:.3g}",
        found.get("verdict", ""),
    ]
