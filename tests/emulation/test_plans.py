"""A plan that a run chooses by itself, over links as it finds them: the training that replicas alone make."""

from __future__ import annotations

from pathlib import Path

import pytest

from testbed.core.record.run_directory import RunDir
from tests.emulation.support import Longhaul, whole_events

STEPS = 4
WORDS = (
    *("topo=two_regions", "topo.rate='50 Mbit/s'", "topo.rtt='20 ms'", "workers=2", "workload=bytelm"),
    *("compressor=none", "batch_size=2", f"steps={STEPS}", "evaluate_every=1000", "seed=5"),
)
SLOW_LINK_BIT_S = (25e6, 52.5e6)
"""What the probe has to find of 50 Mbit/s on a busy machine."""


def _losses(run: RunDir) -> list[float]:
    """Of each step, the mean over the ranks that have one."""
    told = [event for event in whole_events(run) if event["event"] == "step"]
    by_step = [[e["loss"] for e in told if e["step"] == step and e["loss"] is not None] for step in range(1, STEPS + 1)]
    return [sum(losses) / len(losses) for losses in by_step]


@pytest.mark.tier("slow")
def test_a_chosen_plan_has_the_losses_of_replicas(tmp_path: Path, machine_lock: None) -> None:
    runs = []
    for name, words in {"chosen": ("strategy=hybrid", "strategy.plan=auto"), "replicas": ("strategy=ddp",)}.items():
        run = Longhaul(tmp_path / name, *WORDS, *words)
        assert run.wait() in (0, 5), run.said
        runs.append(run.run)
    chosen, replicas = runs
    events = {event["event"]: event for event in whole_events(chosen)}
    assert events["chosen_plan"]["pp"] == 2, "2.7 MB of gradients are more than 4 samples' activations"
    low, high = SLOW_LINK_BIT_S
    assert low < events["link_probe"]["rate_bit_s"][0][1] < high
    assert _losses(chosen) == pytest.approx(_losses(replicas), rel=1e-4)
