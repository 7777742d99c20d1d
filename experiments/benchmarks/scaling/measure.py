"""Data parallel training on more and more workers over one WAN link: step time against the closed form, bytes against
theory."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from compressors.base import alpha_beta
from experiments.common import sources
from experiments.common.benchmark import Point
from experiments.common.whole_run import perform

WORKERS = (2, 4, 8, 16, 32, 64)
_SECONDS = {2: 20, 4: 20, 8: 25, 16: 35, 32: 60, 64: 100}
_STEP_S, _STEPS = 0.25, 5
_RTT_S, _RATE_BIT_S = 0.067, 1e9
REPEATS = 1


def points(*, quick: bool) -> list[Point]:
    return [Point({"workers": n, "repeat": 0}, _SECONDS[n]) for n in (WORKERS[:2] if quick else WORKERS)]


def depends_on(**_: Any) -> Iterator[Path]:
    return sources.of_whole_runs()


def measure(workers: int, repeat: int) -> dict[str, Any]:
    del repeat
    run = perform(
        [
            *("topo=wan1g", f"workers={workers}", f"steps={_STEPS}", "evaluate_every=1000"),
            *("device=paced", f"device.step_s={_STEP_S}"),
        ]
    )
    sizes = [one.size_bytes for one in run.cpu.collectives]
    sent = sum(event["payload_bytes"] for ranks in run.steps for event in ranks.values()) / len(run.steps) / workers
    alpha_s, beta_s_byte = _RTT_S / 2, 8 / _RATE_BIT_S
    return {
        **run.facts(),
        "exposed_s": run.phase_s("exposed_communication"),
        # gloo has two collectives under way at a time
        "closed_form_s": max(alpha_beta.all_reduce_s(size, workers, alpha_s, beta_s_byte) for size in sizes),
        "paced_s": run.device.step_s,
        "sent_bytes": sent,
        "theory_bytes": sum(alpha_beta.all_reduce_sent_bytes(size, workers) for size in sizes),
        "wire_over_payload": run.summary["bytes"]["wire_total"] / run.summary["bytes"]["payload"],
    }
