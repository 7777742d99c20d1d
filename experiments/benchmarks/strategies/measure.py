"""Every strategy in whole runs over two WAN links: how long until a target is reached, and at how many bytes.

The same training on four workers in two regions, uncompressed, each strategy with its own defaults.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from experiments.common import sources
from experiments.common.benchmark import Point
from experiments.common.whole_run import perform

WORKERS = 4
TOPOLOGIES = ("wan100m", "wan1g")
HIERARCHICAL, REGIONS = ("strategy.collective=hierarchical",), ("strategy.replicas=region",)
KINDS = {
    "ddp": (),
    "ddp, hierarchical": HIERARCHICAL,
    "torch_ddp": (),
    "dear": (),
    "dear, hierarchical": HIERARCHICAL,
    "local_sgd": (),
    "local_sgd, regions": (*REGIONS, *HIERARCHICAL),
    "diloco": (),
    "diloco, regions": (*REGIONS, *HIERARCHICAL),
    "streaming_diloco": (),
    # its exchange overlaps steps, which one of our own collectives could not beside those inside the region
    "streaming_diloco, regions": REGIONS,
}
"""By name: the strategy, and what is asked of it beside its defaults."""
SAMPLED = ("ddp", "dear", "local_sgd", "diloco", "streaming_diloco")
"""What a longer training is tried with."""
_SECONDS = {"digits": {"often": 80, "rarely": 30}, "glyphs": {"often": 440, "rarely": 90}}
"""About, of a strategy that exchanges in every step and of one that does not."""


def points(*, quick: bool) -> list[Point]:
    if quick:
        return [_point("diloco", "wan100m", "digits")]
    everyone = [_point(kind, topo, "digits") for topo in TOPOLOGIES for kind in KINDS]
    return everyone + [_point(kind, topo, "glyphs") for topo in TOPOLOGIES for kind in SAMPLED]


def _point(kind: str, topo: str, workload: str) -> Point:
    often = "often" if strategy_of(kind) in ("ddp", "torch_ddp", "dear") else "rarely"
    return Point({"kind": kind, "topo": topo, "workload": workload, "repeat": 0}, _SECONDS[workload][often])


def strategy_of(kind: str) -> str:
    return kind.partition(",")[0]


def depends_on(kind: str, topo: str, workload: str, repeat: int) -> Iterator[Path]:
    """As of `compression`: the training and what decides on its dilation, not the emulation."""
    del repeat
    yield from sources.of_training(strategy_of(kind), workload, topo)


def measure(kind: str, topo: str, workload: str, repeat: int) -> dict[str, Any]:
    del repeat
    strategy = strategy_of(kind)
    run = perform(
        [f"strategy={strategy}", f"topo={topo}", f"workload={workload}", f"workers={WORKERS}", *KINDS[kind]],
        limit_s=3 * _SECONDS[workload]["often"],
    )
    return {**run.learnt(), "mean_step_s": run.summary["step_time_s"]["mean"]}
