"""Terms on which DeepReduce is held to its claim."""

from __future__ import annotations

from experiments.common.papers.claim import Claim, Setup

CLAIM = Claim(
    paper=Setup(
        model="LSTM, next word, Stack Overflow",
        device="one T4 a client",
        workers="56 clients in 7 regions, FedAvg",
        network="AWS regions; 100 Mbit/s inside one",
        baseline="top-10 % with error feedback",
        metric="volume sent, both ways",
    ),
    ours=Setup(
        model="`glyphs`, 332,525 parameters, 300 steps",
        device="cores of this machine",
        workers="4, gradients of every step",
        network="one switch, 100 Mbit/s",
        baseline="top-10 % with error feedback, or dense",
        metric="payload of a worker, accuracy within 0.5 points",
    ),
)
