"""Accuracy of methods on published data: trainings of `fashion` and `texts` on four workers, over seeds.

Compressors are trained in one process whose ranks advance in lockstep (decision 0016). Strategies that exchange rarely
and transforms are trained by real ranks under `torchrun`, without an emulated network, which would add time and nothing
that is learnt; `strategy=ddp` among them says how far two trainings that differ in rounding alone lie apart.

Each row takes three seeds, and then one more at a call until it is decided, up to seven. Calls resume: `make bench
BENCH="--only real_data"` measures what is missing, and asked again the seeds that undecided rows still need. Three
seeds are 54 rows x 2 workloads x 3 = 324 trainings of 40 (lockstep) or 70 s, 3.9 hours; if a third of the rows takes
all seven, 144 more and 1.7 hours.
"""

from __future__ import annotations

import json
import math
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from experiments.benchmarks.real_data import seeds
from experiments.common import sources
from experiments.common.benchmark import RESULTS, Point
from experiments.common.harness import Results
from testbed.core.errors import InputError, RunError
from testbed.orchestrator.machine.clone import environment

WORKLOADS = ("fashion", "texts")
WORKERS = 4
TIMELESS = True
SERVED = "strategy=parameter_server"
"""The row whose rank 0 serves, so that it has one rank more."""
_BY_RANKS = (
    *("strategy=ddp", "strategy=local_sgd", "strategy=diloco", "strategy=streaming_diloco", SERVED),
    *("transform=pufferfish", "transform=cuttlefish"),
)
ROWS = (*(f"compressor={name}" for name in sources.COMPRESSORS), *_BY_RANKS)
_LOCKSTEP_S, _RANKS_S = 40, 70
_LIMIT_S = 900.0
_LOCKSTEP = (
    *("reduction.reducer", "reduction.buckets", "interfaces.workload", "interfaces.schedule", "interfaces.clipping"),
    *("strategies.ddp", "laws.cases.lockstep"),
)
_DATA = ("documents", "next_byte", "byte_model", "novels", "fashion_images")


def points(*, quick: bool) -> list[Point]:
    if quick:
        return [_point(row, "fashion", 0) for row in (seeds.BASE, "compressor=topk", "strategy=local_sgd")]
    kept = list(Results(RESULTS, "real_data").found())
    return [_point(row, workload, seed) for workload in WORKLOADS for row, seed in seeds.asked(_by_row(kept, workload))]


def _by_row(kept: Sequence[dict[str, Any]], workload: str) -> dict[str, seeds.Row]:
    rows: dict[str, seeds.Row] = {row: {} for row in ROWS}
    for point in kept:
        if point["asked"]["workload"] == workload and point["asked"]["row"] in rows:
            rows[point["asked"]["row"]][point["asked"]["seed"]] = point["result"]
    return rows


def _point(row: str, workload: str, seed: int) -> Point:
    seconds = _RANKS_S if row in _BY_RANKS else _LOCKSTEP_S
    return Point({"row": row, "workload": workload, "seed": seed, "repeat": seed}, seconds)


def depends_on(row: str, workload: str, seed: int, repeat: int) -> Iterator[Path]:
    del seed, repeat
    group, _, name = row.partition("=")
    yield from (sources.CONF / part for part in (f"workload/{workload}.yaml", f"{group}/{name}.yaml"))
    yield from (sources.file(f"testbed.worker.data.published.{module}") for module in _DATA)
    yield sources.file(f"testbed.worker.workloads.{workload}")
    if row in _BY_RANKS:
        strategy = name if group == "strategy" else "ddp"
        yield from sources.of_training(strategy, workload, "lan")
        return
    yield from sources.of_compressor(name)
    yield sources.CONF / "topo" / "wan100m.yaml"
    yield sources.file("experiments.benchmarks.learning.lockstep_training")
    yield from (sources.file(f"testbed.worker.{module}") for module in _LOCKSTEP)


def prepare() -> None:
    """Have the data fetched, where there is a network."""
    from testbed.worker.data.published import fashion_images, novels

    for dataset in (fashion_images.DATASET, novels.DATASET):
        dataset.array()


def measure(row: str, workload: str, seed: int, repeat: int) -> dict[str, Any]:
    del repeat
    try:
        return _by_ranks(row, workload, seed) if row in _BY_RANKS else _in_lockstep(row, workload, seed)
    except InputError as error:
        return {"refused": error.faults[0]}


def _in_lockstep(row: str, workload: str, seed: int) -> dict[str, Any]:
    from experiments.benchmarks.learning import lockstep_training

    try:
        training = lockstep_training.of_defaults(workload, row.partition("=")[2], WORKERS, seed)
    except ValueError as error:  # a compressor that takes the momentum of SGD, and there is none
        raise InputError(str(error)) from error
    is_lost = False
    while training.taken < training.steps and not is_lost:
        is_lost = not math.isfinite(training.step())
    metric, value = training.workload.metric, math.nan if is_lost else training.evaluate()
    assert metric is not None
    return {
        "metric": {"name": metric.name, "value": value if math.isfinite(value) else None, "target": metric.target},
        "higher_is_better": metric.higher_is_better,
        "steps": training.taken,
        "sent_bytes": training.sent_bytes,
        "dense_bytes": training.dense_bytes * training.taken,
    }


def _by_ranks(row: str, workload: str, seed: int) -> dict[str, Any]:
    from testbed.orchestrator.config.config import compose
    from testbed.worker.training.parts import build_parts

    ranks = WORKERS + (row == SERVED)
    # evaluated once, at the end
    words = [row, f"workload={workload}", "topo=lan", f"seed={seed}", f"workers={ranks}", f"evaluate_every={10**6}"]
    metric = build_parts(compose(words)).workload.metric
    assert metric is not None
    with tempfile.TemporaryDirectory() as folder:
        summary = _summary(words, ranks, Path(folder))
    is_lost = summary["status"] != "completed"
    return {
        "metric": {
            "name": metric.name,
            "value": None if is_lost else summary["metric"]["value"],
            "target": metric.target,
        },
        "higher_is_better": metric.higher_is_better,
        "steps": summary["steps"],
        "sent_bytes": summary["bytes"]["payload"],
        "dense_bytes": summary["bytes"]["dense"],
    }


def _summary(words: Sequence[str], ranks: int, folder: Path) -> dict[str, Any]:
    """Return what the run of real ranks comes to, which may have diverged.

    Raises:
        RunError: It failed for another reason.
    """
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)  # in the namespace of this point
    meeting = ["--nproc-per-node", str(ranks), "--master-addr", "127.0.0.1", "--master-port", "29500"]
    command = [sys.executable, "-m", "torch.distributed.run", *meeting, "-m", "testbed.worker", "torchrun", *words]
    done = subprocess.run(
        [*command, "--interface", "lo", "--runs", str(folder)],
        env={**environment(), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=_LIMIT_S,
    )
    runs = [path for path in folder.iterdir() if (path / "summary.json").is_file()]
    summary: dict[str, Any] = {"status": "none", "reasons": []}
    if len(runs) == 1:
        summary = json.loads((runs[0] / "summary.json").read_text())
    if summary["status"] != "completed" and not any("diverged" in reason for reason in summary["reasons"]):
        raise RunError(f"{' '.join(words)}: {summary['reasons'] or done.stderr.strip()[-1000:]}")
    return summary
