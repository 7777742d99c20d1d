"""What secure sums cost a round, and what workers that drop out add: LightSecAgg between the workers of one training.

The same federated training of a server and ten workers, each of which runs one client of a hundred in a round, four
times: with updates in the clear, and with secure sums that nobody, a tenth and three tenths of the workers drop out
of. Every worker, and the server, has an uplink to an exchange (`topo=star`). Training is paced; masks, shares and their
recovery take what they take these processors, which the dilation leaves room for. The first round, in which connections
begin slowly, is left out.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from experiments.common import sources, whole_run
from experiments.common.benchmark import Point
from testbed.core.record.run_directory import RunDir

WORKERS = 10
"""Beside the server."""
CLIENTS = 100
PRIVACY, DROPOUTS = 1, 3
IN_THE_CLEAR = "in the clear"
DROPS = (0.0, 0.1, 0.3)
RATE_MBIT_S = {"blocks": 100, "glyphs": 100}
STEPS = {"blocks": 16, "glyphs": 5}
RTT = "20 ms"
DILATION = {"blocks": 8, "glyphs": 8}
"""At which the arithmetic of ten workers' masks fits two cores."""
_STEP_S = 0.05
"""Of a batch on the emulated device."""
_ROUND_S = {"blocks": 0.7, "glyphs": 6.0}
"""About, emulated."""
_START_S = 40.0
_PARTS = ("share", "masked", "answer")
_SECURE = "testbed.worker.methods.federated.secure_aggregation.secure.Secure"


def points(*, quick: bool) -> list[Point]:
    workloads = ("blocks",) if quick else tuple(STEPS)
    return [_point(workload, drop) for workload in workloads for drop in (None, *DROPS)]


def _point(workload: str, drop: float | None) -> Point:
    seconds = _START_S + DILATION[workload] * STEPS[workload] * _ROUND_S[workload]
    return Point({"workload": workload, "drop": drop}, round(seconds))


def depends_on(workload: str, drop: float | None) -> Iterator[Path]:
    """What server and clients do."""
    del drop
    yield from sources.of_training("federated", workload, "star")
    yield from sources.files(
        ["testbed.worker.methods.federated.secure_aggregation.server"], ("testbed.worker.methods.federated",)
    )


def overrides(workload: str, drop: float | None) -> tuple[str, ...]:
    """The arguments of its run; `drop` of the workers in each round, None: updates are in the clear."""
    secure = f"privacy: {PRIVACY}, dropouts: {DROPOUTS}, drop: {drop}"
    return (
        *("strategy=federated", f"strategy.clients={CLIENTS}", f"strategy.participants={WORKERS}"),
        "strategy.placement=equal",
        *(() if drop is None else (f"strategy.secure={{_target_: {_SECURE}, {secure}}}",)),
        *("topo=star", f"topo.rate={RATE_MBIT_S[workload]} Mbit/s", f"topo.rtt={RTT}"),
        *(f"workload={workload}", "batch_size=32", f"workers={WORKERS + 1}"),
        *(f"steps={STEPS[workload]}", "evaluate_every=1000"),
        *("device=paced", f"device.step_s={_STEP_S:g}", f"dilation={DILATION[workload]}"),
    )


def measure(workload: str, drop: float | None) -> dict[str, Any]:
    seconds = _point(workload, drop).seconds
    with whole_run.made(overrides(workload, drop), 3 * seconds) as run:
        found = whole_run.read(run)
        return {**found.facts(), **_of_rounds(run), "payload_bytes": _payload_bytes(found)}


def _payload_bytes(run: whole_run.WholeRun) -> float:
    """That all ranks send in a round."""
    return statistics.fmean(sum(event["payload_bytes"] for event in ranks.values()) for ranks in run.steps)


def _of_rounds(run: RunDir) -> dict[str, Any]:
    """Medians of seconds, means of bytes, over secure rounds but the first; nothing of a run in the clear."""
    rounds = [event for event in run.read_events() if event["event"] == "secure_round" and event["step"] > 1]
    if not rounds:
        return {}
    return {
        "survivors": statistics.fmean(len(one["survivors"]) for one in rounds),
        **{f"{part}_s": statistics.median(one[f"{part}_s"] for one in rounds) for part in ("shares", "recovery")},
        **{f"{part}_bytes": statistics.fmean(one[f"{part}_bytes"] for one in rounds) for part in _PARTS},
    }
