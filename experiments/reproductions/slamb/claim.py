"""Terms on which SLAMB is held to its claim."""

from __future__ import annotations

from experiments.common.papers.claim import Claim, Setup

CLAIM = Claim(
    paper=Setup(
        model="Swin-T on ImageNet; BERT-XL, 2.8 B parameters",
        device="A100 for BERT-XL; else not stated",
        workers="128 GPUs; 1,024 for BERT-XL",
        baseline="the best published system for the same training",
        metric="time of the pre-training",
    ),
    ours=Setup(
        model="`fashion`, batches of 1,024, 100 steps",
        device="paced: 0.1 s a step",
        workers="4; BERT-large on 4 to 1,024 simulated",
        network="one switch, 100 Mbit/s",
        baseline="LAMB, gradients in float32 or float16",
        metric="mean step time, accuracy within 0.5 points",
    ),
    weaker_baseline=(
        "LAMB alone, in float32 and float16; the paper compares with all published systems for the same training"
    ),
)
