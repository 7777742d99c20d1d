"""What each compressor does to accuracy: whole trainings of `glyphs` with four ranks in one process.

Ranks advance in lockstep and exchange in memory: the same batches, compressors, routes and optimizer as in a run on
`wan100m`, step by step, without waiting for its links, since no network changes what is learnt. A test holds its losses
against those of real ranks.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from experiments.common import sources
from experiments.common.benchmark import Point

SEEDS = (0, 1, 2)
WORKERS = 4
TIMELESS = True
_SECONDS = 45
_TRAINING = (
    *("reduction.reducer", "reduction.buckets", "interfaces.workload", "strategies.ddp"),
    *("workloads.glyphs", "data.glyph_images", "data.glyph_fonts"),
)


def points(*, quick: bool) -> list[Point]:
    names, seeds = (("topk",), SEEDS[:1]) if quick else (sources.COMPRESSORS, SEEDS)
    return [
        Point({"compressor": name, "workload": "glyphs", "seed": seed, "repeat": seed}, _SECONDS)
        for seed in seeds
        for name in names
    ]


def depends_on(compressor: str, workload: str, seed: int, repeat: int) -> Iterator[Path]:
    del seed, repeat
    yield from sources.of_compressor(compressor)
    yield from (sources.CONF / part for part in (f"workload/{workload}.yaml", "topo/wan100m.yaml"))
    for name in (*_TRAINING, "laws.cases.lockstep"):
        yield sources.file(f"testbed.worker.{name}")


def measure(compressor: str, workload: str, seed: int, repeat: int) -> dict[str, Any]:
    from experiments.benchmarks.learning import lockstep_training

    del repeat
    training = lockstep_training.of_defaults(workload, compressor, WORKERS, seed)
    losses = [training.step() for _ in range(training.steps)]
    metric = training.workload.metric
    assert metric is not None
    return {
        "metric": {"name": metric.name, "value": training.evaluate(), "target": metric.target},
        "higher_is_better": metric.higher_is_better,
        "last_loss": sum(losses[-20:]) / 20,
        "steps": training.steps,
        "sent_bytes": training.sent_bytes,
        "dense_bytes": training.dense_bytes * training.steps,
    }
