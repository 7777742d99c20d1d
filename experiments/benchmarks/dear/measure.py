"""DeAR against data parallelism that overlaps backward alone, over the ratio of communication to computing.

A ResNet-50's bytes on four workers of one region. With t_ff and t_bp the seconds of forward and backward and t_ar those
of the all-reduce at the link's rate, ideal overlap takes t_ff + max(t_bp, t_ar) and ideal DeAR max(t_ff, t_ar / 2) +
max(t_bp, t_ar / 2): the gain is at most 1 + 1/(2k) for t_bp = k t_ff, where t_ar = 2 t_bp, and none at both ends.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from experiments.common import sources
from experiments.common.benchmark import Point
from experiments.common.papers.dear import BACKWARD_S, STEP_S
from experiments.common.whole_run import perform
from testbed.core.models.catalogue import find_model

WORKERS = 4
MODEL = "resnet50"
RATIOS = (0.4, 1.0, 1.5, 2.0, 3.0, 4.0)
"""Of t_ar to t_bp."""
WHOLE = (0.4, 2.0, 4.0)
"""Those at which all kinds are measured: both ends and the peak; elsewhere the first two."""
KINDS = {
    "dear": ("strategy=dear",),
    "overlapped": ("strategy=ddp", "strategy.collective=ring"),
    "one bucket": ("strategy=ddp", "strategy.collective=ring", "strategy.fusion=one"),
    "after backward": ("strategy=ddp", "strategy.collective=ring", "strategy.overlap=false"),
}
_STEPS = 5


def points(*, quick: bool) -> list[Point]:
    ratios = (2.0,) if quick else RATIOS
    return [
        Point({"kind": kind, "ratio": ratio, "repeat": 0}, 20 + _STEPS * (STEP_S + BACKWARD_S * max(0.0, ratio - 0.5)))
        for ratio in ratios
        for kind in (KINDS if ratio in WHOLE else list(KINDS)[:2])
    ]


def rate_bit_s(ratio: float) -> float:
    """Of the workers' links, at which a ring's all-reduce takes `ratio` times the backward pass."""
    sent_bytes = 2 * (WORKERS - 1) / WORKERS * 4 * sum(layer.numel for layer in find_model(MODEL).layers)
    return 8 * sent_bytes / (ratio * BACKWARD_S)


def depends_on(**_: Any) -> Iterator[Path]:
    return sources.of_whole_runs()


def measure(kind: str, ratio: float, repeat: int) -> dict[str, Any]:
    del repeat
    rate = round(rate_bit_s(ratio) / 1e5) * 0.1
    run = perform(
        [
            *("topo=lan", f"topo.lan_rate='{rate:.1f} Mbit/s'", f"workers={WORKERS}", f"steps={_STEPS}"),
            *("workload=replay", f"workload.model={MODEL}", "device=paced", f"device.step_s={STEP_S}"),
            *("evaluate_every=1000", *KINDS[kind]),
        ]
    )
    return {**run.facts(), "rate_bit_s": rate * 1e6, "exposed_s": run.phase_s("exposed_communication")}
