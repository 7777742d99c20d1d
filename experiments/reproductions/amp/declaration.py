"""AMP (Li et al., NeurIPS 2022, arXiv:2210.07297): a plan that is searched for against a heuristic one, where links are
alike, where they are not, and for a model whose layers are unlike."""

from __future__ import annotations

from collections.abc import Mapping

from experiments.common.papers.declaration import FOLDER, System, Trial
from testbed.core.record.run_directory import RunDir

WORKERS, BATCH, STEP_S, STEPS, DILATION = 4, 8, 0.4, 8, 2
"""Of each worker 8 samples a step; a device that takes 0.4 s for them, forward and backward, whatever the model."""
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
SEARCHED, HEURISTIC, PLACED, PUBLISHED, REPLICAS = "searched", "Megatron's", "DT-FM's", "AMP's model", "replicas alone"
ARMS = {
    SEARCHED: ("strategy.plan=auto",),
    "searched, 2nd": ("strategy.plan=auto", "strategy.plan_place=2"),
    "searched, 3rd": ("strategy.plan=auto", "strategy.plan_place=3"),
    HEURISTIC: ("strategy.plan=megatron",),
    PLACED: ("strategy.plan=dt_fm",),
    PUBLISHED: ("strategy.plan=amp",),
    REPLICAS: ("strategy.plan=data_parallel",),
}
_QUICK = {
    "links alike": (SEARCHED, HEURISTIC),
    "links unlike": (SEARCHED, HEURISTIC, PLACED),
    "layers unlike": (SEARCHED, HEURISTIC, PLACED),
}
_SECONDS = 70
_BESIDE_SECONDS = {PUBLISHED: 110, REPLICAS: 110}


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
        Trial(case, arm, "emulated", overrides(case, arm), _BESIDE_SECONDS.get(arm, _SECONDS))
        for case in CASES
        for arm in (ARMS if full else _QUICK[case])
    ]


def predicted_s(run: RunDir) -> float | None:
    """What the corrected model said of a step of the plan that was chosen."""
    return next((float(event["predicted_s"]) for event in run.read_events() if event["event"] == "chosen_plan"), None)


def facts(case: str, kind: str) -> Mapping[str, str]:
    del kind
    return {"claimed": f"{CLAIMED[case]:g}"}


SYSTEM = System(
    name="amp",
    claim=(
        "the plan that AMP finds is as fast as Megatron's where links are alike, 1.54 times as fast where they are not,"
        " and 1.77 times for a model of unlike layers"
    ),
    claimed=1.77,
    source="Li et al., NeurIPS 2022, arXiv:2210.07297 (section 4)",
    baseline="the faster of Megatron's heuristic and, where links or layers are unlike, of DT-FM's placement",
    setting=(
        f"`bytelm` of six blocks on {WORKERS} workers, one a region, {WORKERS * BATCH} samples a step, a device of"
        f" {STEP_S:g} s for {BATCH} of them; plans searched before the first step with links as probed"
    ),
    candidates=(SEARCHED,),
    baselines=(HEURISTIC, PLACED),
    beside=("searched, 2nd", "searched, 3rd", PUBLISHED, REPLICAS),
    trials=trials,
    quality=predicted_s,
    quality_name="predicted, s",
    facts=facts,
)
