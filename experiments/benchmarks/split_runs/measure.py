"""Four of the models of `split`, emulated: by FLOPs and by timelines, with `ddp` and with `dear`, on both networks.

Tensors and links are smaller by the same factor. Compression takes next to no time on both devices, as in `split`.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from experiments.benchmarks.split.measure import NETWORKS, STRATEGIES, WAYS, asked_of, computing_s, device_of
from experiments.benchmarks.split.replay_profile import replay_profile
from experiments.common import sources
from experiments.common.benchmark import Point
from experiments.common.whole_run import perform
from testbed.orchestrator.config.config import resolve

MODELS = (
    ("resnet50", "rtx2080ti", 32),
    ("resnet152", "rtx2080ti", 8),
    ("densenet201", "h200", 64),
    ("bert-base", "dear", 64),
)
_SCALES = {"bert-base": 50}
_SCALE = 20
_STEPS = {"wan1g": 4, "10 Gbit/s switch": 8}
"""Steps over the WAN take up to a minute."""
_DILATIONS = {("resnet152", "10 Gbit/s switch"): 42}
"""At 9.4, which a pilot found for `ddp`, messages waited for a core 20 to 26 % of the time: 8.1 % more by timeline."""
_SECONDS = {"wan1g": 500, "10 Gbit/s switch": 250}
_FREE = 1e4
"""Speed of compressing at which it takes next to nothing."""


def points(*, quick: bool) -> list[Point]:
    chosen, networks = (MODELS[:1], ["10 Gbit/s switch"]) if quick else (MODELS, list(NETWORKS))
    return [
        Point({"model": model, "device": device, "batch_size": size, "network": network}, _SECONDS[network])
        for network in networks
        for model, device, size in chosen
    ]


def depends_on(**_: Any) -> Iterator[Path]:
    yield from sources.of_whole_runs()


def measure(model: str, device: str, batch_size: int, network: str) -> dict[str, Any]:
    overrides = [
        *asked_of(model, batch_size),
        *(f"workload.scale={_SCALES.get(model, _SCALE)}", f"device.codec_speedup={_FREE:g}"),
        *(*NETWORKS[network], f"steps={_STEPS[network]}", "evaluate_every=1000"),
    ]
    spec = resolve([*overrides, f"device={device}", "strategy=ddp", "dilation=1"]).spec
    if (dilation := _DILATIONS.get((model, network))) is not None:
        overrides.append(f"dilation={dilation}")
    step_s = computing_s(device_of(device).profile(replay_profile(spec)))
    devices = dict(zip(WAYS, (["device=paced", f"device.step_s={step_s:.6g}"], [f"device={device}"]), strict=True))
    return {
        strategy: {way: _run([*overrides, *devices[way], f"strategy={strategy}"]) for way in WAYS}
        for strategy in STRATEGIES
    }


def _run(overrides: list[str]) -> dict[str, Any]:
    run = perform(overrides)
    return {
        **run.facts(),
        "step_s": run.median("step_s"),
        "exposed_s": run.phase_s("exposed_communication"),
        "computing_s": computing_s(run.device),
    }
