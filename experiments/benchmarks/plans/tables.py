"""The table of plans, predicted and measured, and how well the order of the one is the order of the other."""

from __future__ import annotations

from collections.abc import Sequence

from experiments.common.tables import Found, disturbed, grouped, table
from testbed.orchestrator.search.plan.rank_agreement import agreement

_HEADS = ("network", "place", "plan", "predicted, s", "AMP's, s", "measured, s", "predicted / measured", "k", "verdict")
_AGREEMENT = ("network", "plans", "model", "Spearman", "its first over the best", "place of the best")
MODELS = {"corrected": "predicted_s", "AMP's": "published_s"}


def plans(points: Sequence[Found]) -> str:
    ordered = sorted(points, key=lambda point: (point["asked"]["topo"], point["asked"]["place"]))
    told = table(_HEADS, [_row(point) for point in ordered])
    agreed = table(_AGREEMENT, [row for key, of in grouped(ordered, "topo").items() for row in _agreed(key[0], of)])
    return f"{told}\n\n{agreed}"


def _row(point: Found) -> list[str]:
    asked, result = point["asked"], point["result"]
    stages = " ".join(str(cut) for cut in result["cuts"])
    plan = f"pp {result['pp']} (from {stages}), dp {result['dp']}, {result['micro_batch']} a micro-batch"
    return [
        *(asked["topo"] + disturbed(point), str(asked["place"]), plan),
        *(f"{result[key]:.3f}" for key in ("predicted_s", "published_s", "step_s")),
        f"{result['predicted_s'] / result['step_s']:.2f}",
        *(f"{result['dilation']:g}", result["verdict"]),
    ]


def _agreed(topo: str, results: Sequence[Found]) -> list[list[str]]:
    """Of a network, by both models; runs that may not be believed do not count."""
    believed = [one for one in results if one["verdict"] != "invalid"]
    rows = []
    for model, key in MODELS.items() if believed else ():
        found = agreement([one[key] for one in believed], [one["step_s"] for one in believed])
        order = "-" if found.spearman is None else f"{found.spearman:.2f}"
        rows.append([topo, str(len(believed)), model, order, f"{found.regret:.1%}", str(found.best_place)])
    return rows
