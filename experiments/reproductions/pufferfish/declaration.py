"""Pufferfish (Wang et al., MLSys 2021, arXiv:2103.03936): `glyphs` really trained over slow links until as accurate as
at full rank, beside that and PowerSGD; steps of ResNets on 4 to 64 workers, simulated."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from experiments.common.papers.declaration import System, Trial
from experiments.common.papers.low_rank import (
    FULL_RANK_S,
    QUALITY_NAME,
    REFERENCE,
    REWARM,
    SEEDS,
    SETTING,
    STEPS,
    WORKERS,
    accuracy_percent,
    trained,
    whole_run_s,
)
from experiments.common.papers.pufferfish import scaled_overrides

WARM_UP = 75
"""Steps at full rank."""


def _pufferfish(kept: int) -> tuple[str, ...]:
    """With so many first layers that stay full."""
    asked = ("transform=pufferfish", f"transform.warm_up_steps={WARM_UP}", f"transform.keep_first={kept}")
    return (*asked, *REWARM)


ARMS: dict[str, tuple[int, tuple[str, ...]]] = {
    "Pufferfish": (STEPS, _pufferfish(4)),
    "Pufferfish, 340 steps": (340, _pufferfish(4)),
    "Pufferfish, 3 kept, 360 steps": (360, _pufferfish(3)),
    "Powerfish, 340 steps": (340, (*_pufferfish(4), "compressor=powersgd", "transform.compress_after=false")),
    REFERENCE: (STEPS, ()),
    "PowerSGD": (STEPS, ("compressor=powersgd",)),
}
"""Steps, of which more make up for what is lost at the switch, and what is asked besides."""
CASE = "glyphs"
_QUICK = ("Pufferfish, 340 steps", REFERENCE)
_SECONDS = {
    "Pufferfish": 190.0,
    "Pufferfish, 340 steps": 235.0,
    "Pufferfish, 3 kept, 360 steps": 190.0,
    "Powerfish, 340 steps": 165.0,
    REFERENCE: FULL_RANK_S,
    "PowerSGD": 110.0,
}

SCALED_WORKERS = (4, 8, 16, 32, 64)
MODELS = {"ResNet-18": "resnet18", "ResNet-50": "resnet50"}
_QUICK_MODELS, _QUICK_WORKERS = {"ResNet-18": MODELS["ResNet-18"]}, (4, 64)
_PREDICTION_S = 8.0


def trials(full: bool) -> list[Trial]:
    return [*_trained(full), *_scaled(full)]


def _trained(full: bool) -> Iterator[Trial]:
    for seed in range(SEEDS if full else 1):
        for arm in ARMS if full else _QUICK:
            steps, overrides = ARMS[arm]
            yield trained(CASE, arm, overrides, seed, _SECONDS[arm], steps)


def _scaled(full: bool) -> Iterator[Trial]:
    for case, name in (MODELS if full else _QUICK_MODELS).items():
        for workers in SCALED_WORKERS if full else _QUICK_WORKERS:
            for arm, model in (("Pufferfish", f"{name}-pufferfish"), (REFERENCE, name)):
                asked = scaled_overrides(model, workers, steps=4)
                yield Trial(f"{case}, {workers} workers", arm, "simulated", asked, _PREDICTION_S)


def facts(case: str, kind: str) -> Mapping[str, str]:
    if kind == "simulated":
        return {"workers": case.split()[-2]}
    return {"workers": str(WORKERS), "at full rank first": str(WARM_UP)}


SYSTEM = System(
    name="pufferfish",
    claim="end to end up to 1.64x faster than data parallelism at full rank, without loss of accuracy",
    claimed=1.64,
    source="arXiv:2103.03936, MLSys 2021 (abstract)",
    baseline="data parallelism at full rank, buckets overlapped with backward",
    setting=SETTING,
    candidates=tuple(arm for arm in ARMS if arm.startswith("Pufferfish")),
    baselines=(REFERENCE,),
    beside=("PowerSGD", "Powerfish, 340 steps"),
    trials=trials,
    figure=whole_run_s,
    figure_name="s",
    quality=accuracy_percent,
    quality_name=QUALITY_NAME,
    reference=REFERENCE,
    facts=facts,
)
