"""The tables of splitting a step by FLOPs and by timelines, one a network, with the runs that were emulated."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from experiments.benchmarks.split.measure import ACCELERATOR, NETWORKS, SOURCES, STRATEGIES
from experiments.common.tables import Found, number, table

_HEADS = (
    *("model", "device", "batch", "computing, s"),
    *(f"{strategy} {what}" for strategy in STRATEGIES for what in ("by FLOPs, s", "by timeline, s", "change: %")),
    *(f"ddp / dear by {what}" for what in ("FLOPs", "timeline")),
)
_EMULATED = ("k", "verdicts")


def split(points: Sequence[Found], split_runs: Sequence[Found]) -> str:
    """Return a table a network of simulated steps, and one of emulated ones where there are any."""
    parts = list[str]()
    devices = [ACCELERATOR, *SOURCES]
    ordered = sorted(points, key=lambda point: (devices.index(point["asked"]["device"]), point["asked"]["model"]))
    for network in NETWORKS:
        rows = [[*_row(point["asked"], point["result"][network])] for point in ordered]
        parts += [f"Simulated, {network}:", table(_HEADS, rows)]
    runs = sorted(split_runs, key=lambda point: list(NETWORKS).index(point["asked"]["network"]))
    if runs:
        rows = [
            [point["asked"]["network"], *_row(point["asked"], point["result"]), *_of_runs(point["result"])]
            for point in runs
        ]
        parts += ["Emulated:", table(("network", *_HEADS, *_EMULATED), rows)]
    return "\n\n".join(parts)


def _row(asked: Mapping[str, Any], found: Mapping[str, Any]) -> Iterator[str]:
    yield from (asked["model"], asked["device"], str(asked["batch_size"]))
    yield number(found["ddp"]["timeline"]["computing_s"], ".4f")
    for strategy in STRATEGIES:
        flops_s, timeline_s = (found[strategy][way]["step_s"] for way in ("flops", "timeline"))
        yield from (number(flops_s, ".4f"), number(timeline_s, ".4f"), number(timeline_s / flops_s - 1, "+.1f", 100))
    for way in ("flops", "timeline"):
        yield number(found["ddp"][way]["step_s"] / found["dear"][way]["step_s"], ".3f")


def _of_runs(found: Mapping[str, Any]) -> Iterator[str]:
    runs = [found[strategy][way] for strategy in STRATEGIES for way in ("flops", "timeline")]
    yield ", ".join(f"{run['dilation']:g}" for run in runs)
    yield ", ".join(run["verdict"] for run in runs)
