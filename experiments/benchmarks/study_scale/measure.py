"""How the answer changes with the number of workers: members and strategies on 4 to 1,000 workers, simulated.

A point is one kind of training on so many workers, spread over four regions that are all linked (80 ms). Computing and
codecs are measured once for each number of workers, since what is sent depends on it; a step is then predicted for each
rate of the links.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from experiments.common import sources
from experiments.common.benchmark import Point
from testbed.analysis.simulator.predict_command import answer
from testbed.core.errors import InputError
from testbed.core.spec.run_spec import RunSpec
from testbed.core.spec.topology import with_wan
from testbed.orchestrator.search.plan.predict_command import question_of

WORKERS = (4, 8, 16, 32, 64, 256, 1000)
RATES_MBIT_S, RTT_S, STEP_S = (100, 1000), 0.08, 0.1
KINDS: dict[str, tuple[str, ...]] = {
    "none": (),
    "none, two_shot": ("strategy.collective=two_shot",),
    "none, hierarchical": ("strategy.collective=hierarchical",),
    "fp16": ("compressor=fp16",),
    "int8": ("compressor=int8",),
    "topk": ("compressor=topk",),
    **{
        f"{name}, hierarchical": (f"compressor={name}", "strategy.collective=hierarchical")
        for name in ("fp16", "int8", "topk")
    },
    "powersgd": ("compressor=powersgd",),
    "dear": ("strategy=dear",),
    "dear, hierarchical": ("strategy=dear", "strategy.collective=hierarchical"),
}
"""By name: what is asked beside `ddp` without compression."""
_SECONDS = {4: 7, 8: 7, 16: 7, 32: 7, 64: 8, 256: 9, 1000: 12}


def points(*, quick: bool) -> list[Point]:
    sizes = WORKERS[:2] if quick else WORKERS
    return [Point({"kind": kind, "workers": workers}, _SECONDS[workers]) for workers in sizes for kind in KINDS]


def depends_on(kind: str, workers: int) -> Iterator[Path]:
    del workers
    yield from sources.of_compressor(_compressor(kind))
    yield from sources.of_training("dear" if kind.startswith("dear") else "ddp", "digits", "full_mesh")
    yield sources.file("topologies.full_mesh")
    yield from sources.of_prediction()


def _compressor(kind: str) -> str:
    given = [one.removeprefix("compressor=") for one in KINDS[kind] if one.startswith("compressor=")]
    return given[0] if given else "none"


def overrides(kind: str, workers: int) -> tuple[str, ...]:
    return (
        *("topo=full_mesh", f"topo.rate='{RATES_MBIT_S[0]} Mbit/s'", f"topo.rtt='{RTT_S * 1e3:g} ms'"),
        *(f"workers={workers}", "workload=digits", "steps=20", *KINDS[kind]),
        *("device=paced", f"device.step_s={STEP_S:g}"),
    )


def measure(kind: str, workers: int) -> dict[str, Any]:
    """Seconds and bytes of a step by rate; `refused` where the simulator knows no such steps."""
    try:
        question = question_of(overrides(kind, workers))
        spec = RunSpec.from_json(question["spec"])
        found = {}
        for rate in RATES_MBIT_S:
            asked = dataclasses.replace(spec, topology=with_wan(spec.topology, rate * 1e6, RTT_S))
            predicted = answer({**question, "spec": asked.to_json()})
            found[f"{rate:g}"] = {
                "step_s": predicted.times.step_s,
                "wan_bytes": predicted.traffic.wan_wire_bytes,
                "bound_by": predicted.bound_by,
                "outside": list(predicted.standing.outside),
            }
    except InputError as error:
        return {"refused": error.faults[0]}
    return {"by_rate": found}
