"""Compare two ways of splitting a step: those of `ddp` and `dear`, simulated by FLOPs and by a timeline.

Both devices compute a step equally long, forward, backward and optimizer together. They differ in when gradients are
ready and parameters are needed. Models have their full size, links are those of 8 workers, and compression takes no
time, so that nothing else differs. Nothing is measured: predictions need neither a free machine nor a network.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from experiments.benchmarks.split.replay_profile import replay_profile
from experiments.common import sources
from experiments.common.benchmark import Point
from testbed.analysis.simulator import calibration
from testbed.analysis.simulator.predict_command import predicted
from testbed.core.device.device import Paced
from testbed.core.device.measured import Measured, Published, Timelines
from testbed.core.device.profile import Profile
from testbed.core.device.timelines.published import PUBLISHED
from testbed.core.device.timelines.timeline_library import batch_sizes, models
from testbed.orchestrator.config.config import resolve

TIMELESS = True
RUNS_COMMANDS = True  # like a command, it needs neither the machine nor namespaces of its own
WORKERS = 8
NETWORKS = {"wan1g": ("topo=wan1g",), "10 Gbit/s switch": ("topo=lan", "topo.lan_rate='10 Gbit/s'")}
STRATEGIES = ("ddp", "dear")
WAYS = ("flops", "timeline")
ACCELERATOR, PRECISION = "h200", "tf32"
SOURCES = {"dear": "dear", "rtx2080ti": "spd_kfac", "v100": "grace"}
"""Works by the names of the devices whose lengths they give."""
_SECONDS = 150
"""Of a few; a machine that runs have to themselves lets a simulation wait."""


def points(*, quick: bool) -> list[Point]:
    measured = [(model, ACCELERATOR, max(batch_sizes(ACCELERATOR, model, PRECISION))) for model in models(ACCELERATOR)]
    published = [
        (length.model, device, length.batch_size)
        for device, source in SOURCES.items()
        for length in PUBLISHED[source].lengths
    ]
    found = [("resnet50", "rtx2080ti", 32)] if quick else [*measured, *published]
    return [Point({"model": model, "device": device, "batch_size": size}, _SECONDS) for model, device, size in found]


def depends_on(**_: Any) -> Iterator[Path]:
    yield from sources.of_prediction()
    devices = [f"testbed.core.device.{name}" for name in ("device", "measured")]
    yield from sources.files([*devices, "experiments.benchmarks.split.replay_profile"], ("testbed.core.device.",))
    yield from (sources.CONF / "topo" / f"{name}.yaml" for name in ("lan", "wan1g"))


def measure(model: str, device: str, batch_size: int) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for network, topology in NETWORKS.items():
        for strategy in STRATEGIES:
            overrides = [*asked_of(model, batch_size), *topology, f"strategy={strategy}"]
            for way, times in steps(overrides, device_of(device)).items():
                found.setdefault(network, {}).setdefault(strategy, {})[way] = times
    return found


def asked_of(model: str, batch_size: int) -> list[str]:
    """Return what all runs of a model ask for."""
    return [f"workers={WORKERS}", "workload=replay", f"workload.model={model}", f"batch_size={batch_size}"]


def device_of(name: str) -> Timelines:
    """Return the device with a timeline."""
    if name == ACCELERATOR:
        return Measured(accelerator=name, precision=PRECISION)
    return Published(source=SOURCES[name])


def computing_s(profile: Profile) -> float:
    """Return the seconds that a step computes."""
    return profile.forward_s + profile.backward_s + profile.optimizer_s


def steps(overrides: list[str], device: Timelines) -> dict[str, dict[str, float]]:
    """Return the times of a step, by how it is split."""
    spec = resolve([*overrides, "dilation=1"]).spec
    cpu, known = replay_profile(spec), calibration.read(calibration.DEFAULT_FILE)
    timeline = device.profile(cpu)
    by_flop = Paced(step_s=computing_s(timeline)).profile(cpu)
    found = {}
    for way, profile in zip(WAYS, (by_flop, timeline), strict=True):
        times = predicted(spec, cpu, profile, known).times
        found[way] = {"step_s": times.step_s, "exposed_s": times.exposed_s, "computing_s": computing_s(profile)}
    return found
