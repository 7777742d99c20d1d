"""Terms on which PipeTransformer is held to its claim."""

from __future__ import annotations

from experiments.common.papers.claim import Claim, Setup

CLAIM = Claim(
    paper=Setup(
        model="ViT-B/16, fine-tuned on ImageNet",
        device="RTX 5000",
        workers="16 GPUs, 2 machines of 8",
        network="InfiniBand, 5 GB/s",
        baseline="pipelines and replicas, all layers learning",
        metric="time of the training",
    ),
    ours=Setup(
        model="`tiny_vit`, 0.43 M parameters, 100 steps",
        device="paced: 0.22 s for 40 samples",
        workers="4 in two regions",
        network="100 Mbit/s or 1 Gbit/s, 10 ms",
        baseline="the same pipelines, all layers learning",
        metric="time of the training, accuracy within 0.5 points",
    ),
)
