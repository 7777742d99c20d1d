"""Terms on which AMP is held to its claim."""

from __future__ import annotations

from experiments.common.papers.claim import Claim, Setup

CLAIM = Claim(
    paper=Setup(
        model="TransGAN for unlike layers; of the other two cases not stated",
        device="GPUs of AWS P3 and G4 nodes",
        workers="3 P3 nodes and 1 G4 node where links are unlike; otherwise not stated",
        baseline="Megatron's heuristics",
        metric="step time, best of the ten plans tried",
    ),
    ours=Setup(
        model="`bytelm` of six blocks, unlike widths in the third case",
        device="paced: 0.4 s for 8 samples, all alike",
        workers="4, one a region",
        network="100 Mbit/s, 20 ms; or two near pairs",
        baseline="Megatron's heuristic with its best micro-batch and schedule",
        metric="step time of AMP's first plan",
    ),
)
