"""Cuttlefish (Wang et al., MLSys 2023, arXiv:2305.02538): `glyphs` really trained over slow links, with no rank and no
step of the switch given, as long and as accurately as at full rank."""

from __future__ import annotations

from collections.abc import Mapping

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

ARMS = {"Cuttlefish": ("transform=cuttlefish", *REWARM), REFERENCE: ()}
_SECONDS = {"Cuttlefish": 275.0, REFERENCE: FULL_RANK_S}


def trials(full: bool) -> list[Trial]:
    """The runs at full rank are also Pufferfish's."""
    return [
        trained("glyphs", arm, overrides, seed, _SECONDS[arm])
        for seed in range(SEEDS if full else 1)
        for arm, overrides in ARMS.items()
    ]


def facts(case: str, kind: str) -> Mapping[str, str]:
    del case, kind
    return {"workers": str(WORKERS), "steps": str(STEPS)}


SYSTEM = System(
    name="cuttlefish",
    claim="end to end up to 1.2x faster than at full rank, comparably accurate, up to 5.6x smaller",
    claimed=1.2,
    source="arXiv:2305.02538, MLSys 2023 (abstract)",
    baseline="data parallelism at full rank, buckets overlapped with backward",
    setting=SETTING,
    candidates=("Cuttlefish",),
    baselines=(REFERENCE,),
    trials=trials,
    figure=whole_run_s,
    figure_name="s",
    quality=accuracy_percent,
    quality_name=QUALITY_NAME,
    reference=REFERENCE,
    facts=facts,
)
