"""The testbed against real training between continents: published ratios, predicted from runs in one zone alone.

What is emulated is a round of hivemind's averaging as a step of `ddp`: computing as long as fitted to the runs in one
zone, then a direct reduce-scatter and all-gather of all machines in float16. A model of the testbed's own stands in
for the published one. It has S times fewer parameters, and computing and round trips are S times shorter too, so that
rates remain what they are, and a round passes S times as fast.
"""

from __future__ import annotations

import functools
import math
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from experiments.benchmarks.real_wan.published import MODELS, PLACES, ZONE_BIT_S, Machine, fitted, machines
from experiments.common import sources
from experiments.common.benchmark import Point
from experiments.common.whole_run import perform
from testbed.analysis.simulator.model.constants import Constants
from testbed.analysis.simulator.model.network import Network
from testbed.analysis.simulator.model.step_plan import BucketPlan, StepPlan
from testbed.analysis.simulator.timeline.steps import follow
from testbed.core.device.profile import Collective
from testbed.core.models.catalogue import find_model
from testbed.core.spec.paths import WIRE_RATIO
from testbed.orchestrator.machine.clone import RUNS_ROOT
from topologies import described
from topologies.matrices import HIVEMIND, MATRICES
from topologies.parts import every_pair

GOODPUT = 0.935
"""Of an emulated link's rate, what long transfers reach (docs/simulator.md). Published rates are those of transfers, so
links have as much more."""
CONSTANTS = Constants(goodput=GOODPUT)
EMULATED = {"NLP": ("A-2", "A-3", "A-8", "B-2", "B-8", "C-3", "C-8"), "CV": ("A-3", "C-3")}
MAX_GBIT_S = 6.2
"""Of all streams between two regions together."""
_STEPS = 3
_CARRIED_BIT_S = {"NLP": 2.8e9, "CV": 6.9e9}
"""All cards together, which decides on how much slower networks are emulated. Two cores carry the former; of CV
transfers in one zone are 0.2% of a round, and it does not matter that they take longer."""
_CODEC_SPEEDUP = 8
_BESIDE_S = 25
"""Starting and measuring links."""


def points(*, quick: bool) -> list[Point]:
    asked = [("NLP", "B-2")] if quick else [(model, case) for model, cases in EMULATED.items() for case in cases]
    return [Point({"model": model, "case": case}, _seconds(model, case)) for model, case in asked]


def _seconds(model: str, case: str) -> float:
    return _BESIDE_S + _STEPS * dilation(model, case) * round_s(model, case) / faster(model)


def depends_on(model: str, case: str) -> Iterator[Path]:
    """The training and what fits it, not the emulation."""
    del model, case
    yield from sources.of_training("ddp", "replay", "gcp4")
    yield from sources.files(["compressors.fp16", "topologies.described"], ("compressors.", "topologies."))
    yield from sources.of_prediction()  # how long it computes is fitted by what is simulated
    yield from (sources.file("testbed.core.device.device"), sources.CONF / "compressor" / "fp16.yaml")


def faster(model: str) -> float:
    """S of an emulation."""
    return MODELS[model].parameters / find_model(MODELS[model].stand_in).parameters


def dilation(model: str, case: str) -> int:
    return math.ceil(machines(case) * ZONE_BIT_S / _CARRIED_BIT_S[model])


@dataclass(frozen=True)
class Reading:
    """Of what was published about the network."""

    one_stream: bool = False
    """All streams between two regions share the rate of one; else each pair of machines has that rate for itself."""
    zone_bit_s: float = ZONE_BIT_S
    """Of a machine's card."""


EACH_ITS_OWN = Reading()


def network(case: str, reading: Reading = EACH_ITS_OWN, *, times_faster: float = 1.0) -> dict[str, Any]:
    """What `topologies.described` makes the network of a published run of.

    Args:
        times_faster: S; round trips are as much shorter.
    """
    places, figures = PLACES[case], MATRICES["gcp4"]
    links = []
    for a, b in every_pair(tuple(places)):
        pair = figures.pair(a, b)
        assert pair.flow_gbit_s is not None
        streams = 1 if reading.one_stream else places[a] * places[b]
        rate_bit_s = min(streams * pair.flow_gbit_s, MAX_GBIT_S) * 1e9 * WIRE_RATIO / GOODPUT
        rtt_ms = pair.rtt_ms / times_faster
        links.append({"a": a, "b": b, "rate": f"{rate_bit_s / 1e6:.3f} Mbit/s", "rtt": f"{rtt_ms:.4f} ms"})
    source = f"{HIVEMIND.text}; streams: {'one' if reading.one_stream else 'one of each pair of machines'}"
    if times_faster != 1:
        source += f"; round trips {times_faster:.4g} times shorter"
    lan_rate = f"{reading.zone_bit_s / 1e9:g} Gbit/s"
    return {"regions": places, "links": links, "lan_rate": lan_rate, "source": source}


@functools.cache
def averaging_s(model: str, case: str, reading: Reading = EACH_ITS_OWN) -> float:
    """What sending takes in a round, simulated at full size."""
    trained = MODELS[model]
    topology = described.build(workers=machines(case), **network(case, reading))
    bucket = BucketPlan(
        round(trained.parameters),
        0.0,
        (Collective(kind="all_reduce", size_bytes=round(trained.payload_bytes)),),
        (0.0, 0.0),
    )
    step = StepPlan(before_s=0.0, backward_s=0.0, after_s=0.0, buckets=(bucket,), algorithm="two_shot")
    return follow(step, Network(topology, CONSTANTS)).step_s


@functools.cache
def machine(model: str, reading: Reading = EACH_ITS_OWN) -> Machine:
    """Fitted to the runs in one zone, A-2 to A-8, and to nothing else."""
    trained = MODELS[model]
    return fitted(trained, {count: averaging_s(model, f"A-{count}", reading) for count in trained.local_samples_s})


def round_s(model: str, case: str, reading: Reading = EACH_ITS_OWN) -> float:
    """Of a whole round, simulated at full size."""
    return machine(model, reading).alone_s(machines(case)) + averaging_s(model, case, reading)


def ratio(model: str, case: str, reading: Reading = EACH_ITS_OWN) -> float:
    """Throughput over that of as many machines in one zone, simulated."""
    return round_s(model, local(case), reading) / round_s(model, case, reading)


def local(case: str) -> str:
    """The run of as many machines in one zone."""
    return f"A-{machines(case)}"


def overrides(model: str, case: str, topology: Path) -> tuple[str, ...]:
    """The arguments of its run."""
    count = machines(case)
    step_s = machine(model).alone_s(count) / faster(model)
    return (
        *(f"topo={topology}", f"workers={count}", "workload=replay", f"workload.model={MODELS[model].stand_in}"),
        *("strategy=ddp", "strategy.collective=two_shot", "strategy.overlap=false", "strategy.bucket_size='256 MiB'"),
        *("compressor=fp16", "device=paced", f"device.step_s={step_s:.6g}", f"device.codec_speedup={_CODEC_SPEEDUP}"),
        *(f"dilation={dilation(model, case)}", f"steps={_STEPS}", "evaluate_every=1000"),
    )


def measure(model: str, case: str) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        topology = Path(folder) / f"{case.lower()}.yaml"
        asked = {"_target_": "topologies.described.build", **network(case, times_faster=faster(model))}
        topology.write_text(yaml.safe_dump(asked, sort_keys=False))
        run = perform(overrides(model, case, topology), limit_s=4 * _seconds(model, case), runs=RUNS_ROOT)
    return {
        "run_id": run.summary["run_id"],
        "hash": run.spec["hash"],
        **run.facts(),
        "exposed_s": run.phase_s("exposed_communication"),
        "wan_bytes": run.summary["bytes"]["wire_wan"],
    }
