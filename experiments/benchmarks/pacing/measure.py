"""Whether paced workers take the times of the device they stand for, however many share the cores.

A phase is held against the model's; a whole step against the paced phases and the exposed communication measured
beside them.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from experiments.common import sources
from experiments.common.benchmark import Point
from experiments.common.whole_run import WholeRun, perform

WORKERS = (8, 32, 64)
REPEATS = 3
_SECONDS = {8: 30, 32: 60, 64: 90}
_STEP_S, _STEPS = 1.0, 6
PHASES = ("forward", "backward", "compress", "decompress")


def points(*, quick: bool) -> list[Point]:
    if quick:
        return [Point({"workers": 8, "repeat": 0}, _SECONDS[8])]
    return [Point({"workers": n, "repeat": r}, _SECONDS[n]) for r in range(REPEATS) for n in WORKERS]


def depends_on(**_: Any) -> Iterator[Path]:
    return sources.of_whole_runs()


def measure(workers: int, repeat: int) -> dict[str, Any]:
    del repeat
    run = perform(
        [
            *("topo=dtfm-regional4", f"workers={workers}", f"steps={_STEPS}", "evaluate_every=1000"),
            *("device=paced", f"device.step_s={_STEP_S}"),
        ]
    )
    measured = {phase: run.phase_s(phase) for phase in PHASES}
    paced_s = sum(modelled(run).values())
    return {
        **run.facts(),
        "modelled": modelled(run),
        "measured": measured,
        "exposed_s": run.phase_s("exposed_communication"),
        "step_over_parts": run.median("step_s") / (paced_s + run.phase_s("exposed_communication")),
    }


def modelled(run: WholeRun) -> dict[str, float]:
    """Seconds of each phase of a step, by the device's profile."""
    device = run.device
    codec = {"compress": 0.0, "decompress": 0.0}
    for bucket in device.codec:
        for phase, seconds in bucket.rounds:
            codec[phase] += seconds
    return {"forward": device.forward_s, "backward": device.backward_s, **codec}
