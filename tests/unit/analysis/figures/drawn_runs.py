"""Run directories with curves that look like those of real runs, made by formulas, for figures over many runs."""

from __future__ import annotations

import dataclasses
import json
import math
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from testbed.core.record.run_directory import RunDir, write_json
from testbed.core.record.summary import empty_summary
from testbed.core.spec.run_spec import Part, RunSpec
from tests.unit.analysis.synthetic import START_UNIX_S, make_spec
from topologies import two_regions

BYTES_PER_STEP = {"none": 9e6, "fp16": 4.5e6, "int8": 2.3e6, "topk": 2.5e5, "powersgd": 1.6e5, "sz3": 6e5}
"""Bytes over both directions of the WAN link; other compressors send 4e5."""
TARGET = 0.9
_STEPS, _EVALUATE_EVERY = 60, 4


def drawn_run(
    root: Path,
    strategy: str = "ddp",
    compressor: str = "topk",
    *,
    seed: int = 0,
    topo: str = "wan",
    workers: int = 4,
    density: float = 0.01,
    metric: str = "accuracy",
    **changes: Any,
) -> Path:
    """Write a run and return its directory.

    Args:
        changes: Keys of the summary, such as `verdict`.
    """
    chance = random.Random(f"{strategy} {compressor} {seed} {workers}")
    spec = _spec(strategy, compressor, topo, workers, density, seed)
    sent = BYTES_PER_STEP.get(compressor, 4e5) / (1 if strategy == "ddp" else 5) * workers / 4
    step_s = 0.08 + sent / 8e6 + 0.03 * chance.random()
    rate = (0.14 if strategy == "ddp" else 0.09) * (0.8 + 0.4 * chance.random())
    name = f"20260101T{len(list(root.iterdir())) if root.exists() else 0:06d}Z-{topo}-{strategy}-{compressor}"
    run = RunDir(root / name)
    run.path.mkdir(parents=True)
    events = list(_events(step_s, sent, rate, workers, metric, chance))
    run.events.write_text("".join(json.dumps(event) + "\n" for event in events))
    write_json(run.spec, spec.to_json())
    write_json(run.provenance, {"start_unix_s": START_UNIX_S, "code_hash": "feed"})
    write_json(run.network, {"shaper": "netem"})
    points = [(event["t_s"], event["value"]) for event in events if event["event"] == "evaluation"]
    write_json(run.summary, _summary(name, spec, points, metric, sent, step_s) | changes)
    return run.path


def _spec(strategy: str, compressor: str, topo: str, workers: int, density: float, seed: int) -> RunSpec:
    spec = make_spec()
    return dataclasses.replace(
        spec,
        topology=two_regions.build(name=topo, workers=workers, rate="100 Mbit/s", rtt="60 ms"),
        strategy=Part(strategy, "testbed.worker.strategies.ddp.DDP", {}),
        compressor=Part(compressor, "compressors.topk.TopK", {"density": density}),
        steps=_STEPS,
        seed=seed,
    )


def _events(
    step_s: float, sent: float, rate: float, workers: int, metric: str, chance: random.Random
) -> Iterator[dict[str, Any]]:
    model = {"metric_name": metric, "metric_target": TARGET, "higher_is_better": metric == "accuracy"}
    yield {"event": "model", "t_s": -1.0, "rank": 0, **model}
    link: dict[str, Any] = {"event": "link", "name": "oregon-virginia", "wan": True, "rate_bit_s": 1e8}
    for step in range(1, _STEPS + 1):
        t_s = step * step_s
        for source, target in (("oregon", "virginia"), ("virginia", "oregon")):
            share = 0.4 if source == "oregon" else 0.6
            yield {**link, "t_s": t_s, "from": source, "to": target, "wire_bytes": round(step * sent * share)}
        for rank in range(workers):
            yield {"event": "step", "t_s": t_s, "rank": rank, "step": step, "loss": 2 / step, "samples": 32}
        if step % _EVALUATE_EVERY == 0:
            learnt = 1 - math.exp(-rate * step)
            value = min(1.0, 0.1 + 0.88 * learnt + 0.02 * (chance.random() - 0.5))
            value = value if metric == "accuracy" else 40 - 30 * value
            yield {"event": "evaluation", "t_s": t_s, "rank": 0, "step": step, "name": metric, "value": value}


def _summary(
    name: str, spec: RunSpec, points: list[tuple[float, float]], metric: str, sent: float, step_s: float
) -> dict[str, Any]:
    reached = next((t_s for t_s, value in points if value >= TARGET), None) if metric == "accuracy" else None
    workers = spec.workers
    words: dict[str, Any] = {"run_id": name, "status": "completed", "verdict": "valid", "kind": "emulated"}
    words |= {"topo": spec.topology.name, "workload": "digits", "workers": workers, "seed": spec.seed}
    words |= {"strategy": spec.strategy.name, "compressor": spec.compressor.name, "steps": _STEPS}
    best = max(value for _, value in points)
    figures = {"name": metric, "value": points[-1][1], "best": best, "target": TARGET, "time_to_target_s": reached}
    phases = {"forward": 0.2, "backward": 0.35, "compress": 0.08, "decompress": 0.04, "optimizer": 0.05}
    own = {phase: 0.08 * share for phase, share in phases.items()}
    phase_s = {**own, "communicate": step_s, "exposed_communication": step_s - sum(own.values())}
    sizes = {"payload": sent, "wire_total": sent * _STEPS, "wire_wan": sent * _STEPS, "dense": 9e6}
    return empty_summary() | words | {"metric": figures, "phase_s": phase_s, "bytes": sizes}
