"""DeAR (Zhang et al., ICDCS 2023, arXiv:2302.12445) on the models of its paper: eight workers emulated, 64 simulated.

Tensors and links are S times smaller than those they stand for (`workload.scale`). Runs of a case go at one dilation,
so that a message costs each of them the same. Without fusion there are ten times as many messages, which take a larger
dilation, at which each is cheaper: a case of its own, where DeAR and the strong baseline are run again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from experiments.common.papers.dear import MODELS, RATE_BIT_S, WORKERS, Model, ideal_s
from experiments.common.papers.declaration import System, Trial

BUCKET = "strategy.bucket_size='25 MiB'"
_STEPS, _SLOW_STEPS, _REPEATS = 4, 3, 3
_START_S, _PREDICTION_S = 13.0, 9.0
"""Of a run around its steps; of a prediction."""
SLOWLY = ", slowly"
"""Ends the name of a case whose dilation bears runs without fusion."""


QUICK = ("ResNet-50", "DenseNet-201", "BERT-base")
"""Emulated without FULL."""
ARMS: dict[str, tuple[str, ...]] = {
    "DeAR": ("strategy=dear", BUCKET),
    "overlapped": ("strategy=ddp", "strategy.collective=ring", BUCKET),
    "one bucket": ("strategy=ddp", "strategy.collective=ring", BUCKET, "strategy.fusion=one"),
    "MG-WFBP": ("strategy=ddp", "strategy.collective=ring", BUCKET, "strategy.fusion=mg_wfbp"),
    "no fusion": ("strategy=ddp", "strategy.collective=ring", BUCKET, "strategy.fusion=layers"),
    "gloo": ("strategy=ddp", "strategy.collective=gloo", BUCKET),
}
_ALWAYS = ("DeAR", "overlapped", "one bucket", "MG-WFBP")
_SLOW = ("DeAR", "overlapped", "no fusion")
_SIMULATED = ("DeAR", "overlapped", "one bucket")


def trials(full: bool) -> list[Trial]:
    return [*_emulated(full), *_simulated(full)]


def _emulated(full: bool) -> Iterator[Trial]:
    for seed in range(_REPEATS if full else 1):
        for case in MODELS if full else QUICK:
            yield from (_trial(case, arm, "emulated", seed) for arm in _ALWAYS)
    # last, since they take longest
    for case in MODELS if full else QUICK[:1]:
        yield from (_trial(case + SLOWLY, arm, "emulated", 0) for arm in _SLOW)
        if full:
            yield _trial(case, "gloo", "emulated", 0)


def _simulated(full: bool) -> Iterator[Trial]:
    for case in MODELS:
        yield from (_trial(case, arm, "simulated", 0) for arm in (ARMS if full else _SIMULATED))


def _trial(case: str, arm: str, kind: str, seed: int) -> Trial:
    model, workers, is_slow = model_of(case), WORKERS[kind], case.endswith(SLOWLY)
    steps = _SLOW_STEPS if is_slow else _STEPS
    shared = [
        *("topo=lan", f"topo.lan_rate='{RATE_BIT_S / 1e9:g} Gbit/s'", f"workers={workers}", f"steps={steps}"),
        *("workload=replay", f"workload.model={model.name}", f"batch_size={model.batch_size}", "evaluate_every=1000"),
        *(() if model.tokens is None else (f"workload.tokens={model.tokens}",)),
        *("device=paced", f"device.step_s={model.step_s}", f"seed={seed}"),
    ]
    if kind == "simulated":
        return Trial(case, arm, kind, (*shared, *ARMS[arm]), _PREDICTION_S)
    dilation = model.slow_dilation if is_slow else model.dilation
    slowed = (f"workload.scale={model.scale}", f"dilation={dilation:g}")
    return Trial(
        case, arm, kind, (*shared, *slowed, *ARMS[arm]), _START_S + steps * dilation * model.overlapped_s(workers)
    )


def model_of(case: str) -> Model:
    return MODELS[case.removesuffix(SLOWLY)]


def facts(case: str, kind: str) -> Mapping[str, str]:
    model, workers = model_of(case), WORKERS[kind]
    ratio = model.ratio(workers)
    bound = ideal_s("overlapped", ratio) / ideal_s("dear", ratio)
    mark = " (assumed)" if model.samples_s is None else ""
    return {
        "workers": str(workers),
        "one GPU's step, s": f"{model.step_s:.3f}{mark}",
        "t_ar / t_bp": f"{ratio:.2f}",
        "bound over ideal overlap": f"{bound:.3f}",
    }


SYSTEM = System(
    name="dear",
    claim="a training step up to 1.83x faster than with the best other on 10 Gbit/s Ethernet, 64 GPUs",
    claimed=1.83,
    source="arXiv:2302.12445, ICDCS 2023",
    baseline=(
        "the fastest of: data parallelism overlapped with backward in buckets of 25 MiB (our ring, and gloo), in one"
        " bucket, in buckets by MG-WFBP, without fusion"
    ),
    setting=(
        "eight workers emulated on one switch at 10 Gbit/s, bytes and links scaled down alike; one GPU's step as it was"
        " measured for ResNet-50 and BERT, assumed by FLOPs for the others; over ideal overlap with a backward of k"
        " forwards DeAR can gain 1 + 1/(2k) at most, 1.25 for k = 2"
    ),
    candidates=("DeAR",),
    baselines=tuple(arm for arm in ARMS if arm != "DeAR"),
    trials=trials,
    facts=facts,
)
