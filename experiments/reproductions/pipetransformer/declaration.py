"""PipeTransformer (He et al., ICML 2021, arXiv:2102.03161): a fine-tuning whose layers freeze, with each part left out
in turn, over a fast and a slow link between regions."""

from __future__ import annotations

from collections.abc import Mapping

from experiments.common.papers.declaration import System, Trial, metric_percent
from testbed.core.record.run_directory import RunDir

WORKERS, BATCH, MICRO_BATCH, STEPS, SEEDS = 4, 40, 20, 100, 3
"""160 of 3,200 samples a step: five epochs, after the first four of which layers freeze."""
STEP_S, DILATION = 0.22, 2
"""A device that takes 0.22 s for 40 samples, forward and backward through all layers; four workers need 0.1 s of two
cores for it, which at a dilation of 1 leaves no room for what else such a machine does."""
CASES = {"slow, 100 Mbit/s": "100 Mbit/s", "fast, 1 Gbit/s": "1 Gbit/s"}
RTT = "10 ms"
ALL, PLAIN = "all", "no freezing"
_CACHE = "transform.cache='64 MB'"


def _frozen(elastic: str, *more: str) -> tuple[str, ...]:
    return ("transform=freeze", f"strategy.elastic={elastic}", *more)


ARMS = {
    PLAIN: ("transform=none", "strategy.elastic=null"),
    "freezing": _frozen("null"),
    "and AutoPipe": _frozen("pipe"),
    "and AutoPipe, AutoCache": _frozen("pipe", _CACHE),
    "and AutoPipe, AutoDP": _frozen("data"),
    ALL: _frozen("data", _CACHE),
}
PUBLISHED = {PLAIN: 1.0, "freezing": 0.95, "and AutoPipe, AutoCache": 1.26, "and AutoPipe, AutoDP": 2.27, ALL: 2.83}
"""Of the paper's own ablation; freezing with AutoPipe alone is not in it."""
QUICK = (PLAIN, "freezing", ALL)
"""What ten minutes allow; with `FULL=1` each part is left out in turn."""
_SECONDS = {"slow, 100 Mbit/s": 88, "fast, 1 Gbit/s": 76}


def overrides(case: str, arm: str, seed: int) -> tuple[str, ...]:
    """Of a run."""
    return (
        *("topo=two_regions", f"topo.rate='{CASES[case]}'", f"topo.rtt='{RTT}'", f"workers={WORKERS}"),
        *("workload=tiny_vit", f"batch_size={BATCH}", f"steps={STEPS}", "evaluate_every=1000", f"seed={seed}"),
        *("device=paced", f"device.step_s={STEP_S}", f"dilation={DILATION}", "compressor=none"),
        *("strategy=pipetransformer", "strategy.pp=2", "strategy.placement=inside"),
        *(f"strategy.micro_batch={MICRO_BATCH}", *ARMS[arm]),
    )


def trials(full: bool) -> list[Trial]:
    return [
        Trial(case, arm, "emulated", overrides(case, arm, seed), _SECONDS[case])
        for seed in range(SEEDS if full else 1)
        for case in CASES
        for arm in (ARMS if full else QUICK)
    ]


def training_s(run: RunDir) -> float | None:
    """Emulated, of the whole training, with all changes."""
    found = run.read_json(run.summary)["time_s"]
    return None if found is None else float(found)


def facts(case: str, kind: str) -> Mapping[str, str]:
    del case, kind
    return {"published": ", ".join(f"{arm} {ratio:g}" for arm, ratio in PUBLISHED.items() if arm != PLAIN)}


SYSTEM = System(
    name="pipetransformer",
    claim="fine-tuning ViT-B/16 on ImageNet is 2.83 times faster than with all layers learning, and no less accurate",
    claimed=2.83,
    source="He et al., ICML 2021, arXiv:2102.03161 (table of end-to-end results; ablation)",
    baseline="pipelines and replicas of the same model with all layers learning to the end",
    setting=(
        f"`tiny_vit`, {STEPS} steps of {WORKERS * BATCH} samples, {WORKERS} workers in two regions, pipelines of two"
        f" stages inside a region at first; a device of {STEP_S:g} s for {BATCH} samples; an arm counts if its accuracy"
        " on 10,000 test images is at most half a point below that of all layers learning"
    ),
    candidates=(ALL,),
    baselines=(PLAIN,),
    beside=("freezing", "and AutoPipe", "and AutoPipe, AutoCache", "and AutoPipe, AutoDP"),
    trials=trials,
    figure=training_s,
    figure_name="training, s",
    quality=metric_percent,
    reference=PLAIN,
    facts=facts,
)
