"""What is learnt with few bytes over the WAN: for each workload, over seeds, against `ddp` of the same seeds."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence

from experiments.benchmarks.diloco.measure import BASE, base_wan_bytes
from experiments.common.tables import HALF_A_POINT, Found, disturbed, number, spread, table, within

LOSS_SHARE = 0.02
"""Of `ddp`'s, by which a loss may be larger."""
LOSSES = ("bits_per_byte",)
"""Metrics of which less is better."""


def diloco(points: Sequence[Found], base_bytes: Mapping[str, float] | None = None) -> str:
    """
    Args:
        base_bytes: what `ddp` sends over the WAN, by workload; as `compression` measured it where not given.
    """
    known = base_wan_bytes() if base_bytes is None else base_bytes
    workloads = sorted({point["asked"]["workload"] for point in points}, reverse=True)
    return "\n\n".join(
        _workload(workload, [p for p in points if p["asked"]["workload"] == workload], known.get(workload))
        for workload in workloads
    )


def _workload(workload: str, points: Sequence[Found], base_bytes: float | None) -> str:
    by_kind: dict[str, dict[int, Found]] = {}
    for point in points:
        by_kind.setdefault(point["asked"]["kind"], {})[point["asked"]["seed"]] = point
    metric = points[0]["result"]["metric"]["name"]
    base = {seed: _value(point) for seed, point in by_kind.get(BASE, {}).items()}
    ordered = sorted(by_kind, key=lambda kind: (kind != BASE, -_better(by_kind[kind], base, metric), kind))
    heads = (
        *("strategy", "seeds", *_metric_heads(metric), f"against {BASE}, {_unit(metric)}", _within_head(metric)),
        *("over the WAN, MB", f"share of {BASE}'s, %", "verdicts"),
    )
    text = table(heads, [_row(kind, by_kind[kind], base, metric, base_bytes) for kind in ordered])
    sent = f"; `{BASE}` sends {base_bytes / 1e6:.0f} MB over `wan100m`" if base_bytes else ""
    return f"**{workload}**{sent}\n\n{text}"


def _row(
    kind: str, by_seed: Mapping[int, Found], base: Mapping[int, float], metric: str, base_bytes: float | None
) -> list[str]:
    values = [_value(point) for _, point in sorted(by_seed.items())]
    differences = _differences(by_seed, base, metric)
    sent = [p["result"]["wan_bytes"] for p in by_seed.values() if p["result"]["wan_bytes"] is not None]
    wan_bytes = base_bytes if kind == BASE else statistics.fmean(sent) if sent else None
    share = wan_bytes / base_bytes if wan_bytes and base_bytes else None
    scale, form = (1.0, ".3f") if metric in LOSSES else (100.0, ".2f")
    return [
        kind,
        str(len(by_seed)),
        spread(values, form, scale),
        spread(differences, "+.2f", 100) if differences else "-",
        within(differences, LOSS_SHARE if metric in LOSSES else HALF_A_POINT) if differences else "-",
        number(wan_bytes, ".1f", 1e-6),
        number(share, ".2f", 100),
        ", ".join(sorted({p["result"]["verdict"] + disturbed(p) for p in by_seed.values()})),
    ]


def _value(point: Found) -> float:
    return float(point["result"]["metric"]["value"])


def _differences(by_seed: Mapping[int, Found], base: Mapping[int, float], metric: str) -> list[float]:
    """Seed by seed, above 0 where it is better than `ddp`: of an accuracy its own, of a loss as a share of `ddp`'s."""
    both = [(_value(by_seed[seed]), base[seed]) for seed in sorted(by_seed.keys() & base.keys())]
    return [1 - ours / theirs if metric in LOSSES else ours - theirs for ours, theirs in both]


def _better(by_seed: Mapping[int, Found], base: Mapping[int, float], metric: str) -> float:
    differences = _differences(by_seed, base, metric)
    return statistics.fmean(differences) if differences else 0.0


def _metric_heads(metric: str) -> tuple[str]:
    return (metric.replace("_", " ") if metric in LOSSES else f"{metric}, %",)


def _unit(metric: str) -> str:
    return "%: better is +" if metric in LOSSES else "points"


def _within_head(metric: str) -> str:
    return f"within {LOSS_SHARE:.0%}" if metric in LOSSES else "within half a point"
