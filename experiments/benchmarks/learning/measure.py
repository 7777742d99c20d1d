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
    import torch
    import yaml

    from experiments.benchmarks.learning.lockstep_training import LockstepTraining
    from testbed.worker.laws.cases import catalogue
    from testbed.worker.plugins import compressor_catalogue
    from topologies import two_regions

    del repeat
    torch.set_num_threads(1)  # two points side by side are the better use of two cores
    settings = yaml.safe_load((sources.CONF / "workload" / f"{workload}.yaml").read_text())
    usual = settings.pop("run")
    link = yaml.safe_load((sources.CONF / "topo" / "wan100m.yaml").read_text())
    link.pop("_target_")
    link.pop("run", None)
    training = LockstepTraining(
        compressor_catalogue.built(settings.pop("_target_"), settings),
        catalogue.case(compressor_catalogue.part(compressor)).make,
        two_regions.build(workers=WORKERS, **link),
        seed=seed,
        batch_size=usual["batch_size"],
    )
    losses = [training.step() for _ in range(usual["steps"])]
    metric = training.workload.metric
    return {
        "metric": {"name": metric.name, "value": training.evaluate(), "target": metric.target},
        "higher_is_better": metric.higher_is_better,
        "last_loss": sum(losses[-20:]) / 20,
        "steps": usual["steps"],
        "sent_bytes": training.sent_bytes,
        "dense_bytes": training.dense_bytes * usual["steps"],
    }
