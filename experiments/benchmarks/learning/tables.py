"""The table of learning: accuracy over seeds, and against uncompressed trainings of the same seeds."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from experiments.common.tables import HALF_A_POINT, Found, spread, table, within

BASE = "none"


def learning(points: Sequence[Found]) -> str:
    """One row a member, the best first: accuracy over seeds, and against uncompressed trainings of the same seeds."""
    by_name: dict[str, dict[int, Found]] = {}
    for point in points:
        by_name.setdefault(point["asked"]["compressor"], {})[point["asked"]["seed"]] = point["result"]
    base = {seed: result["metric"]["value"] for seed, result in by_name.get(BASE, {}).items()}
    rows = []
    for name, results in by_name.items():
        values = {seed: result["metric"]["value"] for seed, result in results.items()}
        differences = [values[seed] - base[seed] for seed in sorted(values.keys() & base.keys())]
        mean = statistics.fmean(values.values())
        row = [
            name,
            str(len(values)),
            spread(list(values.values()), ".2f", 100),
            spread(differences, "+.2f", 100) if differences else "-",
            within(differences, HALF_A_POINT) if differences else "-",
            f"{statistics.fmean(result['dense_bytes'] / result['sent_bytes'] for result in results.values()):.1f}",
        ]
        rows.append((-mean, row))
    heads = ("compressor", "seeds", "accuracy, %", "against none, points", "within half a point", "dense / payload")
    return table(heads, [row for _, row in sorted(rows)])
