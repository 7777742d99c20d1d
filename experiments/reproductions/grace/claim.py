"""Terms on which GRACE's benchmark is held to its claim."""

from __future__ import annotations

from experiments.common.papers.claim import AtSize, Claim, Setup

CLAIM = Claim(
    paper=Setup(
        model="ResNet-50, ImageNet, randomk 1 %; batch not stated",
        device="one V100 a worker, codecs on it",
        workers="8",
        network="1 Gbit/s, TCP, Horovod over MPI",
        baseline="dense gradients through Horovod, a tensor at a time",
        metric="throughput",
    ),
    ours=Setup(
        model="ResNet-50's tensors by replay, batch 96",
        device="paced: 0.249 s a step; codecs on one core",
        workers="8",
        network="one switch, 1 Gbit/s, scaled",
        baseline="dense gradients in buckets, overlapped or not",
        metric="step time",
    ),
    at_size=(AtSize(("ResNet-50, 1 Gbit/s",), 4.95),),
)
