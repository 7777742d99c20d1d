"""The same training, slowed k times: in emulated time it should take the same, and learn the same."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from experiments.common import sources
from experiments.common.benchmark import Point
from experiments.common.whole_run import perform

TCP = ("reno", "tuned", "stock")
REPEATS = 2
_STEPS, _EMULATED_S, _START_S = 8, 5.0, 14
_MAX_CUBIC_K = 2


def points(*, quick: bool) -> list[Point]:
    return [
        Point({"tcp": tcp, "k": k, "repeat": repeat}, _START_S + _EMULATED_S * k)
        for repeat in range(1 if quick else REPEATS)
        for tcp in (TCP[:1] if quick else TCP)
        for k in (1, 2, 4)
        if tcp != "stock" or k <= _MAX_CUBIC_K
    ]


def depends_on(**_: Any) -> Iterator[Path]:
    return sources.of_whole_runs()


def measure(tcp: str, k: float, repeat: int) -> dict[str, Any]:
    del repeat
    run = perform(
        [
            *("topo=wan100m", "workers=4", f"steps={_STEPS}", "evaluate_every=1000", f"tcp={tcp}", f"dilation={k}"),
            *("device=paced", "device.step_s=0.1"),
        ]
    )
    losses = [[ranks[rank]["loss"] for rank in sorted(ranks)] for ranks in run.by_step.values()]
    return {**run.facts(), "exposed_s": run.phase_s("exposed_communication"), "losses": losses}
