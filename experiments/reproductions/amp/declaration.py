"""AMP (Li et al., NeurIPS 2022, arXiv:2210.07297): a plan that is searched for against a heuristic one, where links are
alike, where they are not, and for a model whose layers are unlike."""

from __future__ import annotations

from collections.abc import Mapping

from experiments.common.papers.declaration import FOLDER, System, Trial
from testbed.core.record.run_directory import RunDir

WORKERS, BATCH, STEP_S, STEPS, DILATION = 4, 8, 0.4, 8, 4
"""Of each worker 8 samples a step; a device that takes 0.4 s for them, forward and backward, whatever the model. At a
dilation of 2 the many calls of micro-batches of one sample make phases late."""
EVEN, UNEVEN = "[4,4,4,4,4,4]", "[16,16,1,1,1,1]"
"""How many times as wide as the model the inner layer of each block is."""
_ALIKE = ("topo=full_mesh", "topo.rate='100 Mbit/s'", "topo.rtt='20 ms'")
_UNLIKE = (f"topo={FOLDER / 'amp' / 'unlike.yaml'}",)
CASES = {
    "links alike": (_ALIKE, EVEN),
    "links unlike": (_UNLIKE, EVEN),
    "layers unlike": (_ALIKE, UNEVEN),
}
CLAIMED = {"links alike": 1.0, "links unlike": 1.54, "layers unlike": 1.77}
PUBLISHED, HEURISTIC, SEARCHED, PLACED, REPLICAS = "AMP's", "Megatron's", "corrected", "DT-FM's", "replicas alone"
_ANY = ("strategy.schedule=auto",)
ARMS = {
    PUBLISHED: ("strategy.plan=amp", *_ANY),
    HEURISTIC: ("strategy.plan=megatron", *_ANY),
    SEARCHED: ("strategy.plan=auto", *_ANY),
    PLACED: ("strategy.plan=dt_fm", *_ANY),
    REPLICAS: ("strategy.plan=data_parallel",),
    f"{PUBLISHED}, 1f1b": ("strategy.plan=amp", "strategy.schedule=1f1b"),
    f"{HEURISTIC}, 1f1b": ("strategy.plan=megatron", "strategy.schedule=1f1b"),
}
"""Schedules are searched too. AMP's own model tells none from another: which of them its plan gets the corrected model
says, as it does of Megatron's; what the paper's executor has, 1F1B, is shown."""
_QUICK = {
    "links alike": (PUBLISHED, HEURISTIC),
    "links unlike": (PUBLISHED, HEURISTIC, PLACED),
    "layers unlike": (PUBLISHED, HEURISTIC),
}
_SECONDS = 85
_LONGER_SECONDS = {REPLICAS: 130}


def overrides(case: str, arm: str) -> tuple[str, ...]:
    """Of a run."""
    links, widening = CASES[case]
    return (
        *links,
        *(f"workers={WORKERS}", "workload=bytelm", f"workload.widening={widening}", f"batch_size={BATCH}"),
        *("device=paced", f"device.step_s={STEP_S}", f"dilation={DILATION}", f"steps={STEPS}"),
        *("evaluate_every=1000", "compressor=none", "strategy=hybrid", *ARMS[arm]),
    )


def trials(full: bool) -> list[Trial]:
    return [
        Trial(case, arm, "emulated", overrides(case, arm), _LONGER_SECONDS.get(arm, _SECONDS))
        for case in CASES
        for arm in (ARMS if full else _QUICK[case])
    ]


def predicted_s(run: RunDir) -> float | None:
    """Return what the corrected model said of a step of the plan that was chosen."""
    return next((float(event["predicted_s"]) for event in run.read_events() if event["event"] == "chosen_plan"), None)


def facts(case: str, kind: str) -> Mapping[str, str]:
    del kind
    return {"claimed": f"{CLAIMED[case]:g}"}


SYSTEM = System(
    name="amp",
    claim=(
        "AMP's plan is as fast as Megatron's where links are alike, 1.54x faster where they are not, and 1.77x faster"
        " for a model of unlike layers"
    ),
    claimed=1.77,
    source="Li et al., NeurIPS 2022, arXiv:2210.07297 (section 4)",
    baseline="Megatron's heuristic, with the micro-batch and the schedule that are best for it",
    setting=(
        f"`bytelm` of six blocks on {WORKERS} workers, one a region, {WORKERS * BATCH} samples a step, a device of"
        f" {STEP_S:g} s for {BATCH} of them; plans chosen before the first step, AMP's by its own model, with links as"
        " probed"
    ),
    candidates=(PUBLISHED,),
    baselines=(HEURISTIC,),
    beside=tuple(arm for arm in ARMS if arm not in (PUBLISHED, HEURISTIC)),
    trials=trials,
    quality=predicted_s,
    quality_name="predicted, s",
    facts=facts,
)
