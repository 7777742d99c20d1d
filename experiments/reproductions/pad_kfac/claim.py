"""Terms on which PAD-KFAC is held to its claim."""

from __future__ import annotations

from experiments.common.papers.claim import AtSize, Claim, Setup

CLAIM = Claim(
    paper=Setup(
        workers="64 GPUs",
        network="10 Gbit/s",
        baseline="the best distributed K-FAC before it",
        metric="iteration time",
    ),
    ours=Setup(
        model="ResNet-50 by replay; ResNet-152 simulated",
        device="paced: times of the SPD-KFAC paper's GPU",
        workers="8 emulated, 64 simulated",
        network="one switch, 10 Gbit/s, scaled",
        baseline="SPD-KFAC, MPD-KFAC, D-KFAC; the best",
        metric="step time",
    ),
    at_size=(AtSize(("ResNet-50", "ResNet-152"), 1.36),),
)
