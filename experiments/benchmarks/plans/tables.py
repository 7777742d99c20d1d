"""The tables of plans: predicted and measured, how far apart, and how well one order is the other's."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from experiments.common.tables import Found, disturbed, grouped, table
from testbed.orchestrator.search.plan.rank_agreement import agreement

_HEADS = (
    *("network", "schedule", "place", "plan", "predicted, s", "AMP's, s", "measured, s", "predicted / measured"),
    *("k", "verdict"),
)
_ERRORS = ("schedule", "plans", "median error", "worst", "AMP's: median", "worst")
_AGREEMENT = ("network", "plans", "model", "Spearman", "its first over the best", "place of the best")
MODELS = {"corrected": "predicted_s", "AMP's": "published_s"}


def plans(points: Sequence[Found]) -> str:
    def place(point: Found) -> tuple[str, str, int]:
        return point["asked"]["topo"], point["asked"]["schedule"], point["asked"]["place"]

    ordered = sorted(points, key=place)
    each = table(_HEADS, [_row(point) for point in ordered])
    errors = table(_ERRORS, [row for key, of in grouped(ordered, "schedule").items() for row in _errors(key[0], of)])
    agreed = table(_AGREEMENT, [row for key, of in grouped(ordered, "topo").items() for row in _agreed(key[0], of)])
    return f"{errors}\n\n{agreed}\n\n{each}"


def _row(point: Found) -> list[str]:
    asked, result = point["asked"], point["result"]
    stages = " ".join(str(cut) for cut in result["cuts"])
    plan = f"pp {result['pp']} (from {stages}), dp {result['dp']}, {result['micro_batch']} a micro-batch"
    return [
        *(asked["topo"] + disturbed(point), asked["schedule"], str(asked["place"]), plan),
        *(f"{result[key]:.3f}" for key in ("predicted_s", "published_s", "step_s")),
        f"{result['predicted_s'] / result['step_s']:.2f}",
        *(f"{result['dilation']:g}", result["verdict"]),
    ]


def _counted(results: Sequence[Found]) -> list[Found]:
    """Return those that are not of invalid runs."""
    return [one for one in results if one["verdict"] != "invalid"]


def _errors(schedule: str, results: Sequence[Found]) -> list[list[str]]:
    """Return how far both models are from what was measured, of all networks: a share of the measured time."""
    counted, cells = _counted(results), list[str]()
    if not counted:
        return []
    for key in MODELS.values():
        errors = [abs(one[key] / one["step_s"] - 1) for one in counted]
        cells += [f"{statistics.median(errors):.1%}", f"{max(errors):.1%}"]
    return [[schedule, str(len(counted)), *cells]]


def _agreed(topo: str, results: Sequence[Found]) -> list[list[str]]:
    """Return how well each model orders a network's plans."""
    counted, rows = _counted(results), list[list[str]]()
    for model, key in MODELS.items() if counted else ():
        found = agreement([one[key] for one in counted], [one["step_s"] for one in counted])
        order = "-" if found.spearman is None else f"{found.spearman:.2f}"
        rows.append([topo, str(len(counted)), model, order, f"{found.regret:.1%}", str(found.best_place)])
    return rows
