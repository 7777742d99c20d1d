"""What freezing costs in accuracy and saves in gradients: whole fine-tunings of pre-trained models, over seeds.

One rank takes the batches of the workload's usual ranks together: the mean of their gradients is its own but for the
order of sums, and no network changes what is learnt. The same loop and transform as in a run.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from experiments.common import sources
from experiments.common.benchmark import Point

WORKLOADS = ("tiny_vit", "tiny_bert")
SEEDS = (0, 1, 2)
RANKS = 4
BASE, SCRATCH = "none", "none, not pre-trained"
ARMS: dict[str, dict[str, Any]] = {
    BASE: {"policy": "none"},
    "schedule, 1/5": {"policy": "schedule", "alpha": 1 / 5},
    "schedule, 1/3": {"policy": "schedule", "alpha": 1 / 3},
    "schedule, 1/2": {"policy": "schedule", "alpha": 1 / 2},
    "grad_norm, 1/3": {"policy": "grad_norm", "alpha": 1 / 3},
    SCRATCH: {"policy": "none"},
}
TIMELESS = True
_SECONDS = 45
_LOOP = (
    *("training.loop", "interfaces.transform", "training.optimizers", "transforms.freeze", "interfaces.workload"),
    *("data.pretrained.fine_tuned", "model.chain", "methods.freezing.freeze_policy", "methods.pipeline.autopipe"),
)
_MODELS = (
    *("model.transformer_block", "data.pretrained.weights", "data.pretrained.glyph_encoder"),
    *("data.pretrained.source_encoder", "data.glyph_images", "data.glyph_fonts"),
)


def points(*, quick: bool) -> list[Point]:
    chosen = (
        [("tiny_vit", "schedule, 1/3", 0)] if quick else [(w, a, s) for s in SEEDS for w in WORKLOADS for a in ARMS]
    )
    return [
        Point({"workload": workload, "arm": arm, "seed": seed, "repeat": seed}, _SECONDS)
        for workload, arm, seed in chosen
    ]


def depends_on(workload: str, arm: str, seed: int, repeat: int) -> Iterator[Path]:
    del arm, seed, repeat
    yield from (sources.CONF / f"workload/{workload}.yaml", sources.CONF / "transform/freeze.yaml")
    for name in (*_LOOP, *_MODELS, f"workloads.{workload}", "strategies.ddp"):
        yield sources.file(f"testbed.worker.{name}")


def measure(workload: str, arm: str, seed: int, repeat: int) -> dict[str, Any]:
    import time

    import torch

    from testbed.worker.communication.communicator import Communicator
    from testbed.worker.interfaces.workload_capabilities import preload
    from testbed.worker.training.loop import Training
    from testbed.worker.training.parts import build_parts

    del repeat
    torch.set_num_threads(1)
    spec = _spec(workload, arm, seed)
    parts, events = build_parts(spec), list[dict[str, Any]]()
    preload(parts.workload)
    training = Training(spec, parts, Communicator(0, 1, spec.timeout_s), events.append)
    training.bind()
    everything = training.parameters
    training.run(time.monotonic())
    metric = parts.workload.metric
    assert metric is not None
    frozen = {event["step"]: event for event in events if event["event"] == "freeze"}
    learning, learnt = everything, 0
    for step in range(1, training.steps + 1):
        learnt += learning
        learning = frozen[step]["parameters"] if step in frozen else learning
    return {
        "metric": {"name": metric.name, "value": _last(events, "evaluation", "value"), "target": metric.target},
        "frozen": [{"epoch": event["epoch"], "layers": event["frozen"]} for event in frozen.values()],
        "gradient_bytes": 4 * learnt,
        "dense_bytes": 4 * everything * training.steps,
        "cpu_s": sum(event["cpu_s"] for event in events if event["event"] == "step"),
        "steps": training.steps,
    }


def _last(events: list[dict[str, Any]], kind: str, key: str) -> float:
    return float([event[key] for event in events if event["event"] == kind][-1])


def _spec(workload: str, arm: str, seed: int) -> Any:
    import yaml

    from testbed.core.spec.run_spec import Part, RunSpec
    from topologies import lan

    def part(kind: str, name: str, **given: Any) -> Part:
        settings = yaml.safe_load((sources.CONF / kind / f"{name}.yaml").read_text()) | given
        settings.pop("run", None)
        return Part(name, settings.pop("_target_"), settings)

    usual = yaml.safe_load((sources.CONF / "workload" / f"{workload}.yaml").read_text())["run"]
    return RunSpec(
        topology=lan.build(workers=1),
        workload=part("workload", workload, pretrained=arm != SCRATCH),
        strategy=part("strategy", "ddp"),
        compressor=part("compressor", "none"),
        device=part("device", "native"),
        transform=part("transform", "freeze", **ARMS[arm]),
        steps=usual["steps"],
        batch_size=RANKS * usual["batch_size"],
        evaluate_every=usual["steps"],
        seed=seed,
    )
