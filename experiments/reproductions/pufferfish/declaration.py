"""Pufferfish (Wang et al., MLSys 2021, arXiv:2103.03936) on `glyphs`, really trained over slow links: seconds until the
same accuracy, beside full rank, PowerSGD and Cuttlefish."""

from __future__ import annotations

from collections.abc import Mapping

from experiments.reproductions.system import System, Trial
from testbed.core.rundir import RunDir

RATE = "50 Mbit/s"
"""At which a ring takes 0.32 s for full gradients."""
WORKERS, STEPS, SEEDS = 4, 300, 3
_WARM_UP, _REWARM = 30, 10
_PUFFERFISH = ("transform=pufferfish", f"transform.warm_up_steps={_WARM_UP}", f"transform.rewarm_steps={_REWARM}")
_CUTTLEFISH = ("transform=cuttlefish", "transform.epsilon=0.3", f"transform.rewarm_steps={_REWARM}")
ARMS = {
    "Pufferfish": _PUFFERFISH,
    "Powerfish": (*_PUFFERFISH, "compressor=powersgd", "transform.compress_after=false"),
    "full rank": (),
    "PowerSGD": ("compressor=powersgd",),
    "Cuttlefish": _CUTTLEFISH,
}
_SECONDS = {"full rank": 125, "PowerSGD": 50, "Powerfish": 60, "Pufferfish": 75, "Cuttlefish": 125}
CASES = {"glyphs": ("Pufferfish", "Cuttlefish", "full rank"), "glyphs, with PowerSGD": ("Powerfish", "PowerSGD")}


def reached_s(run: RunDir) -> float | None:
    """Emulated seconds to the workload's target; None where it was not reached."""
    found = run.read_json(run.summary)["metric"]["time_to_target_s"]
    return None if found is None else float(found)


def trials(full: bool) -> list[Trial]:
    shared = (
        *("topo=lan", f"topo.lan_rate='{RATE}'", f"workers={WORKERS}", "workload=glyphs", f"steps={STEPS}"),
        *("evaluate_every=10", "workload.momentum=0.95"),
    )
    return [
        Trial(case, arm, "emulated", (*shared, f"seed={seed}", *ARMS[arm]), _SECONDS[arm])
        for seed in range(SEEDS if full else 1)
        for case, arms in CASES.items()
        for arm in arms
    ]


def facts(case: str, kind: str) -> Mapping[str, str]:
    del case, kind
    return {"workers": str(WORKERS), "steps": str(STEPS), "at full rank before the switch": str(_WARM_UP)}


SYSTEM = System(
    name="pufferfish",
    claim="end to end up to 1.64 times as fast as data parallelism at full rank, without loss of accuracy",
    claimed=1.64,
    source="arXiv:2103.03936, MLSys 2021 (abstract)",
    baseline="data parallelism at full rank, buckets overlapped with backward; or PowerSGD",
    setting=f"four workers on one switch at {RATE}, `glyphs` really trained, seconds until 84 % of 10,000 test images",
    candidates=("Pufferfish", "Powerfish", "Cuttlefish"),
    baselines=("full rank", "PowerSGD"),
    trials=trials,
    figure=reached_s,
    figure_name="s to 84 %",
    facts=facts,
)
