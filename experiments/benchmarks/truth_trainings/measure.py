"""DDP and DiLoCo, emulated where they were really measured: four nodes, and tbf at each one's own card.

Packets have the cluster's size. TCP is CUBIC, as there, and counts emulated seconds.
"""

from __future__ import annotations

import math
import statistics
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from experiments.benchmarks.truth.published import LINKS, MTU_BYTES
from experiments.benchmarks.truth.training import (
    BUCKETS_BYTES,
    CACHES_BYTES,
    ROUND_TRIP_S,
    TENSORS_BYTES,
    cluster,
    computing_s,
    ddp,
    diloco,
)
from experiments.common import sources
from experiments.common.benchmark import Point
from experiments.common.whole_run import perform
from testbed.core.models.model import Layer, Model
from testbed.core.models.model_file import model_to_json
from testbed.core.record.run_directory import write_json
from testbed.orchestrator.machine.clone import RUNS_ROOT

FORMS = {"diloco": diloco, "ddp": ddp}
"""Published and predicted times of each method."""
_QUEUE = "{burst: 32 kB, latency: 50 ms}"
_STEPS = 3
EXCHANGE_ALONE_S = 1e-3
"""Computing of a step whose exchange alone is of interest."""
_CARRIED_BIT_S = 0.2e9
"""All cards together, which decides on how much slower a network is emulated.

A burst of 32 kB has super-packets cut to frames. At 1e9 cores were idle for 2 to 8 % of the time, and runs `invalid`.
"""
_LEAST_DILATION = 4
"""Without dilation a round trip is 0.12 ms of this machine's own: links were slower beside the workers' start, and
messages waited for a core for a tenth of the time."""
_BESIDE_S = 40
"""Starting and measuring links."""


def points(*, quick: bool) -> list[Point]:
    asked = [{"method": method, "link": link} for method in FORMS for link in LINKS]
    return [Point(one, _seconds(**one)) for one in (asked[:1] if quick else asked)]


def _seconds(method: str, link: str) -> float:
    return _BESIDE_S + _STEPS * dilation(link) * FORMS[method](link).measured_s


def depends_on(**asked: Any) -> Iterator[Path]:
    """The emulated network and the training; closed forms only decide how long a point may take."""
    del asked
    yield from sources.of_network("topologies.star")
    yield from sources.of_training("ddp", "replay", "star")
    yield sources.file("testbed.core.device.device")


def dilation(link: str) -> int:
    of = cluster(link)
    return max(_LEAST_DILATION, math.ceil(of.nodes * of.rate_bit_s / _CARRIED_BIT_S))


def model(method: str) -> Model:
    """Return what a method sends in one exchange: a layer for each all-reduce, the last sent first.

    DDP fills its first bucket with one embedding; its buffers are the rotary caches. Only what ends last counts
    for its step, so computing is in the first layer.
    """
    sizes = TENSORS_BYTES if method == "diloco" else BUCKETS_BYTES[::-1]
    layers = tuple(
        Layer(f"layer{index}", ((size // 4,),), 1.0 if index == 0 else 1e-6) for index, size in enumerate(sizes)
    )
    parameters = sum(layer.numel for layer in layers)
    about = ("a sample", "experiments/benchmarks/truth_trainings")
    return Model(f"tbf-{method}", layers, parameters, None, *about, CACHES_BYTES if method == "ddp" else 0)


def overrides(method: str, link: str, file: Path) -> tuple[str, ...]:
    """The arguments of a point's run."""
    of, sends_buffers = cluster(link), method == "ddp"
    step_s = computing_s() if sends_buffers else EXCHANGE_ALONE_S
    return (
        *("topo=star", f"workers={of.nodes}", f"topo.mtu={MTU_BYTES}", f"topo.rtt='{1e6 * ROUND_TRIP_S / 2:g} us'"),
        *(f"topo.rate='{2 * of.rate_bit_s / 1e6:g} Mbit/s'", f"topo.lan_rate='{of.rate_bit_s / 1e6:g} Mbit/s'"),
        *(f"topo.lan_queue={_QUEUE}", "tcp=stock", f"dilation={dilation(link)}"),
        *("workload=replay", f"workload.model={file}", "strategy=ddp", "strategy.fusion=layers", "compressor=none"),
        *("strategy.collective=nccl_ring", f"strategy.broadcast_buffers={str(sends_buffers).lower()}"),
        *(f"strategy.overlap={str(sends_buffers).lower()}", "device=paced", f"device.step_s={step_s:.6g}"),
        *(f"steps={_STEPS}", "evaluate_every=1000"),
    )


def measure(method: str, link: str) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / f"tbf-{method}.json"
        write_json(file, model_to_json(model(method)))
        run = perform(overrides(method, link, file), limit_s=4 * _seconds(method, link), runs=RUNS_ROOT)
    return {
        "run_id": run.summary["run_id"],
        "hash": run.spec["hash"],
        **run.facts(),
        "exposed_s": run.phase_s("exposed_communication"),
        "mean_step_s": statistics.fmean(event["step_s"] for ranks in run.steps for event in ranks.values()),
        "wire_bytes": run.summary["bytes"]["wire_total"],
    }
