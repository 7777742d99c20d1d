"""PAD-KFAC, whose factors travel to their owners alone, beside SPD-, MPD- and D-KFAC: eight workers emulated, 64
simulated."""

from __future__ import annotations

from experiments.common.papers.declaration import System
from experiments.common.papers.kfac import Setting, facts

RATE_BIT_S = 10e9
_ARMS = ("PAD-KFAC", "PAD-KFAC, gradients", "SPD-KFAC", "MPD-KFAC", "D-KFAC")

SYSTEM = System(
    name="pad-kfac",
    claim="an iteration up to 36 % faster than that of the best distributed K-FAC before it, 64 GPUs, 10 Gbit/s",
    claimed=1.36,
    source="Zhang, PhD thesis proposal, HKUST, 2 June 2023 (abstract)",
    baseline="the fastest of SPD-KFAC, MPD-KFAC and D-KFAC",
    setting=(
        "eight workers emulated on one switch at 10 Gbit/s, bytes and links scaled down alike; models and one GPU's"
        " times are those of the SPD-KFAC paper; factors and inverses in every step"
    ),
    candidates=_ARMS[:2],
    baselines=_ARMS[2:],
    trials=Setting(_ARMS, RATE_BIT_S, 10, 5, ("ResNet-50",), ("ResNet-50", "ResNet-152")).trials,
    facts=facts,
)
