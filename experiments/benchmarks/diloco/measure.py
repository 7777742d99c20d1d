"""What DiLoCo and its kin learn with about a hundredth of `ddp`'s bytes over the WAN, against `ddp`, over seeds.

Four workers in two regions on `wan100m`; `ddp` on `lan`, in an eighth of the time: what is learnt depends on no
network. The bytes that it sends over a WAN are those of `compression`'s uncompressed runs of the same training.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from experiments.common import sources
from experiments.common.benchmark import RESULTS, Point
from experiments.common.whole_run import perform

WORKERS, DILATION = 4, 6
SEEDS = (0, 1, 2)
BASE = "ddp"
KINDS = {
    BASE: ("ddp", None, "none"),
    "diloco, every 100 steps": ("diloco", 100, "none"),
    "diloco, every 50, bf16": ("diloco", 50, "bf16"),
    "diloco, every 28, int4": ("diloco", 28, "int4"),
    "local_sgd, every 50, bf16": ("local_sgd", 50, "bf16"),
    "streaming_diloco, every 50, bf16": ("streaming_diloco", 50, "bf16"),
}
"""By name: strategy, steps between two exchanges, compressor."""
WORKLOADS = ("glyphs", "bytelm")
_SECONDS = {"glyphs": 100, "bytelm": 160}
_WAN, _LAN = "wan100m", "lan"


def points(*, quick: bool) -> list[Point]:
    if quick:
        return [_point("diloco, every 100 steps", "glyphs", 0)]
    return [_point(kind, workload, seed) for seed in SEEDS for workload in WORKLOADS for kind in KINDS]


def _point(kind: str, workload: str, seed: int) -> Point:
    return Point({"kind": kind, "workload": workload, "seed": seed, "repeat": seed}, _SECONDS[workload])


def depends_on(kind: str, workload: str, seed: int, repeat: int) -> Iterator[Path]:
    del seed, repeat
    strategy, _, compressor = KINDS[kind]
    yield from sources.of_training(strategy, workload, _topo(kind))
    yield from sources.of_compressor(compressor)


def _topo(kind: str) -> str:
    return _LAN if kind == BASE else _WAN


def measure(kind: str, workload: str, seed: int, repeat: int) -> dict[str, Any]:
    del repeat
    strategy, every, compressor = KINDS[kind]
    rarely = [] if every is None else [f"strategy.sync_every={every}"]
    run = perform(
        [
            *(f"strategy={strategy}", *rarely, f"compressor={compressor}", f"topo={_topo(kind)}"),
            *(f"workload={workload}", f"seed={seed}", f"workers={WORKERS}", f"dilation={DILATION}"),
        ],
        limit_s=3 * _SECONDS[workload],
    )
    return run.learnt()


def base_wan_bytes() -> dict[str, float]:
    """By workload: what `ddp` sent over the WAN, as `compression` measured it; absent where it did not."""
    path = RESULTS / "compression.json"
    found = json.loads(path.read_text())["points"] if path.exists() else []
    wanted = {"compressor": "none", "topo": _WAN, "seed": 0}
    return {
        point["asked"]["workload"]: point["result"]["wan_bytes"]
        for point in found
        if wanted.items() <= point["asked"].items()
    }
