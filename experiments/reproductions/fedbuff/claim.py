"""Terms on which FedBuff is held to its claim."""

from __future__ import annotations

from experiments.common.papers.claim import Claim, Setup

CLAIM = Claim(
    paper=Setup(
        workers="hundreds of clients at once, and more",
        baseline="synchronous federated learning",
        metric="efficiency; its unit is not stated in the abstract",
    ),
    ours=Setup(
        model="`blocks`",
        device="paced: 50 ms a step, lognormal slowness",
        workers="100 clients, 10 at once",
        network="star, 50 Mbit/s, 40 ms",
        baseline="FedAvg in rounds of ten clients",
        metric="time to 75 % accuracy",
    ),
)
