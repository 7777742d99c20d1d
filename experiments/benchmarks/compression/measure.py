"""Every compressor in whole runs over a WAN: what it does to time and to bytes.

The same training on four workers in two regions; beside each stands the uncompressed run, and one in bfloat16. What
compressors do to accuracy, over seeds, is `learning`'s question.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from experiments.common import sources
from experiments.common.benchmark import Point
from experiments.common.whole_run import perform

SAMPLED = ("none", "bf16", "int8", "topk")
"""What longer trainings and a second link are tried with: one of each kind, since all would take two nights."""
_SECONDS = {"digits": 70, "glyphs": 350, "bytelm": 350}


def points(*, quick: bool) -> list[Point]:
    if quick:
        return [_point("topk", "wan100m", "digits", 0)]
    everyone = [_point(name, "wan100m", "digits", 0) for name in sources.COMPRESSORS]
    sampled = [
        _point(name, topo, workload, 0)
        for topo, workload in (("wan100m", "glyphs"), ("wan1g", "glyphs"), ("wan100m", "bytelm"), ("wan1g", "bytelm"))
        for name in SAMPLED
    ]
    return everyone + sampled


def _point(compressor: str, topo: str, workload: str, seed: int) -> Point:
    asked = {"compressor": compressor, "topo": topo, "workload": workload, "seed": seed, "repeat": 0}
    return Point(asked, _SECONDS[workload])


def depends_on(compressor: str, topo: str, workload: str, seed: int, repeat: int) -> Iterator[Path]:
    """Accuracy and bytes are the training's own; times depend on the emulation as well, which has pages of its own."""
    del seed, repeat
    yield from sources.of_compressor(compressor)
    yield from sources.of_training("ddp", workload, topo)


def measure(compressor: str, topo: str, workload: str, seed: int, repeat: int) -> dict[str, Any]:
    del repeat
    run = perform(
        [f"compressor={compressor}", f"topo={topo}", f"workload={workload}", f"seed={seed}"],
        limit_s=3 * _SECONDS[workload],
    )
    return {**run.learnt(), "phase_s": run.summary["phase_s"], "dense_bytes": run.summary["bytes"]["dense"]}
