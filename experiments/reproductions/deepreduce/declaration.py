"""DeepReduce (Xu, Kostopoulou et al., NeurIPS 2021, arXiv:2102.03112) on `glyphs`, really trained over a slow switch:
the bytes that a worker sends, beside top-10 % with indices of 32 bits, at equal accuracy."""

from __future__ import annotations

from collections.abc import Mapping

from experiments.common.papers.declaration import System, Trial, metric_percent
from testbed.core.record.run_directory import RunDir

RATE = "100 Mbit/s"
"""Of the paper's clients inside one region."""
WORKERS, STEPS, SEEDS = 4, 300, 3
DENSITY = 0.1
FALSE_POSITIVE_RATE = 0.004
"""To which the paper's volumes for BF-P0 come back: 32 (1 + 9 rate) + 1.44 log2(1 / rate) bits an entry."""
LOCAL_STEPS = 10
CLAIMED_SHARE = {"top-10 %": 0.2033, "BF-P0": 0.1426, "Fit-Poly": 0.1039, "QSGD + BF-P0": 0.0621}
"""Of the dense volume, as published."""
_WITHIN = f"compressor.inner.density={DENSITY}"
_BLOOM = ("compressor=deepreduce_bloom", _WITHIN, f"compressor.false_positive_rate={FALSE_POSITIVE_RATE}")
ARMS: dict[str, tuple[str, ...]] = {
    "QSGD + BF-P0": (*_BLOOM, "compressor.value=qsgd"),
    "BF-P0": _BLOOM,
    "Fit-Poly": ("compressor=deepreduce_fit", _WITHIN, "compressor.index=raw"),
    "top-10 %": ("compressor=topk", f"compressor.density={DENSITY}"),
    "dense": ("compressor=none",),
    "QSGD + Rice": ("compressor=deepreduce_qsgd", _WITHIN),
    "Rice": ("compressor=deepreduce", _WITHIN),
    "Fit-Poly + Rice": ("compressor=deepreduce_fit", _WITHIN),
}
CASES = {"glyphs": 1, f"glyphs, {LOCAL_STEPS} local steps": LOCAL_STEPS}
"""Steps between two exchanges: of gradients after each, or of what replicas have learnt, as in federated averaging."""
_SECONDS = {
    "dense": 190,
    "top-10 %": 155,
    "QSGD + BF-P0": 170,
    "BF-P0": 165,
    "Fit-Poly": 100,
    "QSGD + Rice": 120,
    "Rice": 65,
    "Fit-Poly + Rice": 100,
}
_LOCAL_SECONDS = 60
_QUICK = ("dense", "top-10 %", "QSGD + BF-P0")
_ALWAYS = (*_QUICK, "QSGD + Rice", "BF-P0", "Fit-Poly")
"""The others learn the same as one of these, bit for bit: once is enough."""
_LOCAL = ("dense", "top-10 %", "QSGD + BF-P0", "QSGD + Rice")


def sent_mb(run: RunDir) -> float | None:
    """Payload of one worker over the whole run."""
    summary = run.read_json(run.summary)
    payload = summary["bytes"]["payload"]
    return None if payload is None else float(payload) / summary["workers"] / 1e6


def trials(full: bool) -> list[Trial]:
    every_step, local = CASES
    if not full:
        return [_trial(every_step, arm, 0) for arm in _QUICK]
    found = []
    for seed in range(SEEDS):
        found += [_trial(every_step, arm, seed) for arm in (_ALWAYS if seed else ARMS)]
        found += [_trial(local, arm, seed) for arm in _LOCAL]
    return found


def _trial(case: str, arm: str, seed: int) -> Trial:
    every = CASES[case]
    strategy = ("strategy=local_sgd", f"strategy.sync_every={every}") if every > 1 else ("strategy=ddp",)
    shared = (
        *("topo=lan", f"topo.lan_rate='{RATE}'", f"workers={WORKERS}", "workload=glyphs", f"steps={STEPS}"),
        *("evaluate_every=100", f"seed={seed}", *strategy),
    )
    seconds = _LOCAL_SECONDS if every > 1 else _SECONDS[arm]
    return Trial(case, arm, "emulated", (*shared, *ARMS[arm]), seconds)


def facts(case: str, kind: str) -> Mapping[str, str]:
    del kind
    return {"workers": str(WORKERS), "steps": str(STEPS), "steps between exchanges": str(CASES[case])}


SYSTEM = System(
    name="deepreduce",
    claim="QSGD + BF-P0 of top-10 % sends 6.2 % of the dense volume, top-10 % itself 20.3 %, at equal accuracy",
    claimed=round(CLAIMED_SHARE["top-10 %"] / CLAIMED_SHARE["QSGD + BF-P0"], 2),
    source="arXiv:2102.03112, NeurIPS 2021",
    baseline="top-10 % with error feedback, float32 values and int32 indices; or dense gradients",
    setting=(
        f"four workers on one switch at {RATE}, `glyphs` really trained for {STEPS} steps; payload that a worker sends"
        " in the run; accuracy on 10,000 test images at most half a point below that of top-10 %"
    ),
    candidates=("QSGD + BF-P0", "BF-P0", "Fit-Poly"),
    baselines=("top-10 %", "dense"),
    beside=("QSGD + Rice", "Rice", "Fit-Poly + Rice"),
    trials=trials,
    figure=sent_mb,
    figure_name="MB sent",
    quality=metric_percent,
    reference="top-10 %",
    facts=facts,
)
