"""All-reduces, emulated where a cluster was really measured: one replayed bucket of the published size.

Packets have the cluster's size. TCP is CUBIC, as there, and counts emulated seconds.
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from experiments.benchmarks.truth.published import SHAPED, SIZES_MIB, aws, form_s
from experiments.common import sources
from experiments.common.benchmark import Point
from experiments.common.whole_run import perform
from testbed.core.costs.sockets import MIB
from testbed.core.models.model import Layer, Model
from testbed.core.models.model_file import model_to_json
from testbed.core.record.run_directory import write_json
from testbed.orchestrator.machine.clone import RUNS_ROOT

TABLE_WITHOUT_POINTS = True
"""Predictions stand on the page whether anything was emulated or not."""
NODES = (4, 8)
COLLECTIVES = {"gloo": "gloo", "nccl": "nccl_ring"}
"""Collective that stands for each library: gloo itself, and a ring over sockets that sends as NCCL does."""
_STEPS, _STEP_S = 3, 0.01
_QUEUE = "64 MB"
"""Drops nothing, as the queues of the clusters did not."""
_CARRIED_BIT_S = 0.5e9
"""All uplinks together, on the mean, as two cores carry them; decides on how much slower a network is emulated."""
_BESIDE_S = 30
"""Starting and measuring links."""


def points(*, quick: bool) -> list[Point]:
    asked = [
        {"library": library, "nodes": nodes, "link": link, "size_mib": size_mib}
        for library in COLLECTIVES
        for nodes in NODES
        for link in SHAPED
        for size_mib in SIZES_MIB
    ]
    return [Point(one, _seconds(**one)) for one in (asked[-2:] if quick else asked)]


def _seconds(library: str, nodes: int, link: str, size_mib: int) -> float:
    step_s = form_s(library, "all_reduce", size_mib * MIB, aws(nodes, link)) + _STEP_S
    return _BESIDE_S + _STEPS * dilation(library, nodes, link) * step_s


def depends_on(**asked: Any) -> Iterator[Path]:
    """The emulated network and the training; closed forms only decide how long a point may take."""
    del asked
    yield from sources.of_network("topologies.star")
    yield from sources.of_training("ddp", "replay", "star")
    yield sources.file("testbed.core.device.device")


def dilation(library: str, nodes: int, link: str) -> int:
    """Return how much slower a network is emulated, by how busy a library keeps it."""
    size_bytes, of = max(SIZES_MIB) * MIB, aws(nodes, link)
    sent_bit = 8 * of.wire_ratio * 2 * (nodes - 1) * size_bytes
    return math.ceil(sent_bit / form_s(library, "all_reduce", size_bytes, of) / _CARRIED_BIT_S)


def table(size_mib: int) -> Model:
    """Return a model of as many layers of a MiB, which one bucket takes."""
    layers = tuple(Layer(f"layer{index}", ((512, 512),), 1.0) for index in range(size_mib))
    parameters = sum(layer.numel for layer in layers)
    return Model(f"all-reduce-{size_mib}", layers, parameters, None, "a sample", "experiments/benchmarks/truth")


def overrides(library: str, nodes: int, link: str, model: Path) -> tuple[str, ...]:
    """The arguments of a point's run."""
    cluster = aws(nodes, link)
    return (
        *("topo=star", f"workers={nodes}", f"topo.mtu={cluster.mtu_bytes}"),
        *(f"topo.rate='{cluster.rate_bit_s / 1e6:.3f} Mbit/s'", "topo.lan_rate='10 Gbit/s'"),
        *(
            f"topo.rtt='{1e3 * cluster.round_trip_s / 2:g} ms'",
            f"topo.queue='{_QUEUE}'",
            "tcp=stock",
            f"dilation={dilation(library, nodes, link)}",
        ),
        *("workload=replay", f"workload.model={model}", "strategy=ddp", "strategy.fusion=one", "compressor=none"),
        f"strategy.collective={COLLECTIVES[library]}",
        *("device=paced", f"device.step_s={_STEP_S}", f"steps={_STEPS}", "evaluate_every=1000"),
    )


def measure(library: str, nodes: int, link: str, size_mib: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        model = Path(folder) / f"all-reduce-{size_mib}.json"
        write_json(model, model_to_json(table(size_mib)))
        limit_s = 4 * _seconds(library, nodes, link, size_mib)
        run = perform(overrides(library, nodes, link, model), limit_s=limit_s, runs=RUNS_ROOT)
    return {
        "run_id": run.summary["run_id"],
        "hash": run.spec["hash"],
        **run.facts(),
        "exposed_s": run.phase_s("exposed_communication"),
        "wan_bytes": run.summary["bytes"]["wire_wan"],
    }
