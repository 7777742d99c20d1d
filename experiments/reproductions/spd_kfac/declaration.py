"""SPD-KFAC (Shi et al., ICDCS 2021, arXiv:2107.06533) on the models of its paper: eight workers emulated, 64
simulated."""

from __future__ import annotations

from experiments.common.papers.declaration import System
from experiments.common.papers.kfac import MODELS, Setting, facts

RATE_BIT_S = 25e9
"""At which the ring of eight workers takes the 0.173 s that the sums of ResNet-50's factors took 64 GPUs."""
_ARMS = ("SPD-KFAC", "MPD-KFAC", "D-KFAC")

SYSTEM = System(
    name="spd-kfac",
    claim="an iteration 10 to 35 % faster than D-KFAC's; 13 to 19 % faster than MPD-KFAC's, 64 GPUs, 100 Gbit/s",
    claimed=1.19,
    source="arXiv:2107.06533, ICDCS 2021",
    baseline="the faster of D-KFAC, where every worker inverts all, and MPD-KFAC, where owners take turns",
    setting=(
        "eight workers emulated on one switch at 25 Gbit/s, at which they sum ResNet-50's factors in the time that the"
        " authors' 64 GPUs took, bytes and links scaled down alike; one GPU's times as the authors' breakdown has them"
        " for ResNet-50, left over from sums for the others; factors and inverses in every step"
    ),
    candidates=_ARMS[:1],
    baselines=_ARMS[1:],
    trials=Setting(_ARMS, RATE_BIT_S, 15, 4, ("ResNet-50", "ResNet-152"), tuple(MODELS)).trials,
    facts=facts,
)
