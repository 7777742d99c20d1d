"""Terms on which hierarchical federated averaging is held to its claim."""

from __future__ import annotations

from experiments.common.papers.claim import OWN, Claim, Setup

CLAIM = Claim(
    kind=OWN,
    paper=Setup(
        network="radio links of devices",
        metric="time and energy of devices",
    ),
    ours=Setup(
        model="`glyphs`",
        device="cores of this machine",
        workers="4 clients in each of two regions",
        network="100 Mbit/s, 67 ms between regions",
        baseline="one server for both regions",
        metric="bytes over the link between regions",
    ),
)
