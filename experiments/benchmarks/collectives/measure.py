"""Algorithms of a collective over four regions: WAN bytes against theory, and time against gloo's flat ring."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from experiments.common import sources
from experiments.common.benchmark import Point
from experiments.common.whole_run import WholeRun, perform
from testbed.core.costs.collective import link_bytes, wan_bytes
from testbed.core.spec.paths import WIRE_RATIO
from testbed.core.spec.topology import Topology

ALGORITHMS = ("gloo", "ring", "hierarchical", "hierarchical_two_shot", "two_shot")
WORKERS = (8, 16)
REPEATS = 1
_SECONDS = {8: 30, 16: 40}
_STEPS = 6


def points(*, quick: bool) -> list[Point]:
    if quick:
        return [Point({"algorithm": "hierarchical", "workers": 8, "repeat": 0}, _SECONDS[8])]
    return [Point({"algorithm": a, "workers": n, "repeat": 0}, _SECONDS[n]) for n in WORKERS for a in ALGORITHMS]


def depends_on(**_: Any) -> Iterator[Path]:
    return sources.of_whole_runs()


def measure(algorithm: str, workers: int, repeat: int) -> dict[str, Any]:
    del repeat
    run = perform(
        [
            *("topo=dtfm-regional4", f"workers={workers}", f"steps={_STEPS}", "evaluate_every=1000"),
            *("device=paced", "device.step_s=0.1", f"strategy.collective={algorithm}"),
        ]
    )
    theory = {key: _STEPS * value for key, value in _theory(algorithm, run).items()}
    found = {(link["name"], link["from"]): link["wire_bytes"] for link in run.summary["links"] if link["wan"]}
    errors = {key: found[key] / value - 1 for key, value in theory.items() if value}
    return {
        **run.facts(),
        "exposed_s": run.phase_s("exposed_communication"),
        "links_used": len(errors),
        "worst_error": max(errors.values(), key=abs),
        "idle_links_bytes": sum(size for key, size in found.items() if not theory.get(key)),
        "wan_bytes_step": sum(found.values()) / _STEPS,
    }


def _theory(algorithm: str, run: WholeRun) -> dict[tuple[str, str], float]:
    """Of one step, by link and where it comes from; frames included, acknowledgements not."""
    topology = Topology.from_json(run.spec["topology"])
    sent: dict[tuple[str, str], float] = {}
    for one in run.cpu.collectives:
        by_link = link_bytes(wan_bytes(algorithm, one.kind, one.size_bytes, topology), topology)
        for key, size in by_link.items():
            sent[key] = sent.get(key, 0.0) + size * WIRE_RATIO
    return sent
