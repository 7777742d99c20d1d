"""A run directory as the orchestrator leaves it, with figures that can be worked out by hand.

Four ranks in two regions take `STEPS` steps, one every second. Rank r takes 0.8 + 0.05 r seconds for each, so rank 3 is
the slowest with 0.95 s. Every rank sends 1000 bytes a step; uncompressed it would be 24,000 bytes over all ranks.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from testbed.core.record.run_directory import RunDir, write_json
from testbed.core.spec.run_spec import Part, RunSpec
from testbed.core.spec.topology import Link
from topologies import two_regions

RUN_ID = "20250102T030405Z-wan-ddp-topk-0123abcd"
START_UNIX_S = 1735787050.25
STEPS = 60
RANKS = 4
PAYLOAD_BYTES = 1000
DENSE_BYTES_STEP = 24_000
ACCESS_BYTES_S = 1500
WAN_BYTES_S = {"oregon": 2000, "virginia": 2500}
PHASES = {
    "forward": 0.1,
    "backward": 0.2,
    "compress": 0.05,
    "communicate": 0.5,
    "decompress": 0.03,
    "optimizer": 0.02,
    "exposed_communication": 0.4,
}


def make_spec(compressor: str = "topk", *, steps: int = STEPS, target: float | None = None) -> RunSpec:
    return RunSpec(
        topology=two_regions.build(name="wan", workers=RANKS, rate="100 Mbit/s", rtt="60 ms", loss="0.1%"),
        workload=Part("digits", "testbed.worker.workloads.digits.Digits"),
        strategy=Part("ddp", "testbed.worker.strategies.ddp.DDP"),
        compressor=Part(compressor, "compressors.topk.TopK", {"density": 0.01}),
        device=Part("native", "native"),
        steps=steps,
        target=target,
    )


def make_events(spec: RunSpec, *, steps: int = STEPS, nan_from: int | None = None) -> Iterator[dict[str, Any]]:
    """In the order in which a collector writes them; `nan_from` is the first step whose loss is no number."""
    yield {"event": "schedule", "t_s": -5.0, "what": "network", "detail": ""}
    yield from _measurements(spec, "idle", -4.0)
    yield {
        "event": "model",
        "t_s": -1.0,
        "parameters": 1000,
        "dense_bytes_step": DENSE_BYTES_STEP,
        "metric_name": "accuracy",
        "metric_target": 0.9,
        "higher_is_better": True,
    }
    for t_s in range(-2, steps + 1):
        yield from _second(spec, t_s)
        if t_s == -1:
            yield from _measurements(spec, "busy", -0.2)
        if t_s >= 1:
            loss = math.nan if nan_from is not None and t_s >= nan_from else 2.0 / t_s
            yield from _steps(t_s, loss)
            if t_s % 20 == 0 or t_s == steps:
                value = 0.8 + 0.1 * t_s / STEPS
                yield {"event": "evaluation", "t_s": t_s, "rank": 0, "step": t_s, "name": "accuracy", "value": value}
    yield {"event": "schedule", "t_s": steps + 0.5, "what": "end", "detail": ""}


def _measurements(spec: RunSpec, stage: str, t_s: float) -> Iterator[dict[str, Any]]:
    for link in spec.topology.links:
        for source, target, profile in link.directions():
            if stage in (found := _measured(link, profile.rate_bit_s)):
                told = {"event": "measurement", "t_s": t_s, "name": link.name, "from": source, "to": target}
                rtt_s = found[stage]["rtt_s"]
                probed = {"rtt_max_s": rtt_s, "delay_s": rtt_s / 2, "probes": 20, "probes_span_s": 0.16}
                burst = {"window_s": 0.5, "wire_bytes": 10_000_000, "drops": 0, "arrived_ratio": 1.0, "gaps": None}
                yield {**told, "stage": stage, **found[stage], **probed, "burst": burst}


def _measured(link: Link, rate_bit_s: float) -> dict[str, dict[str, Any]]:
    """By stage. Beside the workers' warm-up the WAN links alone are measured."""
    if not link.wan:
        return {"idle": {"rate_bit_s": 0.99 * rate_bit_s, "rtt_s": 7e-6}}
    idle = {"rate_bit_s": 0.98 * rate_bit_s, "rtt_s": 0.0603}
    return {"idle": idle, "busy": {"rate_bit_s": 0.99 * rate_bit_s, "rtt_s": 0.0605}}


def _steps(step: int, loss: float) -> Iterator[dict[str, Any]]:
    for rank in range(RANKS):
        step_s = 0.8 + 0.05 * rank
        yield {
            "event": "step",
            "t_s": step - 1 + step_s,
            "rank": rank,
            "step": step,
            "loss": loss,
            "step_s": step_s,
            "phase_s": dict(PHASES),
            "payload_bytes": PAYLOAD_BYTES,
            "samples": 32,
        }


def _second(spec: RunSpec, t_s: int) -> Iterator[dict[str, Any]]:
    seconds = max(0, t_s)
    for link in spec.topology.links:
        for source, target, _ in link.directions():
            sent = seconds * (WAN_BYTES_S[source] if link.wan else ACCESS_BYTES_S)
            yield {
                "event": "link",
                "t_s": t_s,
                "name": link.name,
                "from": source,
                "to": target,
                "wan": link.wan,
                "wire_bytes": sent,
                "packets": sent // 100,
                "drops": 0,
                "backlog_bytes": 10,
                "interval_s": 1.0,
                "busy_s": 0.2,
                "busy_bytes": 500,
                "excluded_bytes": 0,
            }
    wan = spec.topology.wan_links[0]
    yield {"event": "rtt", "t_s": t_s + 0.1, "name": wan.name, "rtt_s": 0.0612}
    for source, target, _ in wan.directions():
        line = {"event": "delay_line", "t_s": t_s, "name": wan.name, "from": source, "to": target, "packets": 10}
        late = {"late_p50_s": 1e-4, "late_p99_s": 8e-4 if t_s else None, "late_max_s": 2e-3}
        yield {**line, **late, "drops": 0, "interval_s": 1.0, "queue_drops": 0}
    for node in spec.topology.nodes:
        tcp = {"rtt_s": 0.07, "min_rtt_s": 0.06, "retransmitted": 2, "delivered_bytes": 1000 * seconds}
        yield {"event": "tcp", "t_s": t_s, "node": node.name, **tcp}
        usage = {"cpu_s": 0.5 * seconds, "throttled_s": 0.0, "memory_bytes": 2**28}
        yield {"event": "node", "t_s": t_s, "node": node.name, **usage}
    host = {"cpu_idle_ratio": 0.6, "cpu_pressure_s": 0.01 * seconds, "steal_s": 0.0, "interval_s": 1.0}
    yield {"event": "host", "t_s": t_s, **host, "sampler_late_s": 0.002}


def make_network(spec: RunSpec) -> dict[str, Any]:
    links = []
    for link in spec.topology.links:
        for source, target, profile in link.directions():
            asked = {
                "rate_bit_s": profile.rate_bit_s,
                "delay_s": profile.delay_s,
                "rtt_s": link.rtt_s,
                "loss_ratio": profile.loss_ratio,
                "limit_bytes": 750_000,
            }
            stages = [{"stage": stage, **found} for stage, found in _measured(link, profile.rate_bit_s).items()]
            measured = {key: stages[-1][key] for key in ("rate_bit_s", "rtt_s")}
            links.append(
                {
                    "name": link.name,
                    "from": source,
                    "to": target,
                    "wan": link.wan,
                    "asked": asked,
                    "read_back": {"rate_bit_s": profile.rate_bit_s},
                    "measured": {**measured, "loss_ratio": None},
                    "measurements": stages,
                }
            )
    return {"shaper": "nfqueue", "tcp": "tuned", "links": links}


def make_run(
    root: Path,
    *,
    run_id: str = RUN_ID,
    compressor: str = "topk",
    steps: int = STEPS,
    target: float | None = None,
    nan_from: int | None = None,
    cut_bytes: int = 0,
    without: tuple[str, ...] = (),
) -> RunDir:
    """Write the directory.

    Args:
        cut_bytes: how much a kill took from the end of events.jsonl.
        without: names of files that are not written.
    """
    run = RunDir.create(root, run_id)
    spec = make_spec(compressor, steps=steps, target=target)
    lines = "".join(json.dumps(event) + "\n" for event in make_events(spec, steps=steps, nan_from=nan_from))
    run.events.write_text(lines[: len(lines) - cut_bytes])
    write_json(run.spec, {**spec.to_json(), "code_hash": "feed"})
    write_json(run.network, make_network(spec))
    provenance = {"start_unix_s": START_UNIX_S, "commit": "abc", "sysctls": {"oregon-0": {"net.core.rmem_max": "1"}}}
    write_json(run.provenance, provenance)
    for name in without:
        (run.path / name).unlink()
    return run
