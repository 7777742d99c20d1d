"""Terms on which KV transfer is held to its claim."""

from __future__ import annotations

from experiments.common.papers.claim import Claim, Setup

CLAIM = Claim(
    paper=Setup(
        model="language models of billions of parameters",
        network="between host memory and accelerator",
        baseline="other ways with the cache in host memory",
        metric="speed of decoding",
    ),
    ours=Setup(
        model="byte-level transformer, four layers, 512 bytes",
        device="paced: 10 ms a token, assumed",
        workers="2: one decodes, one keeps the cache",
        network="100 Mbit/s, 800 us; or 100 Mbit/s, 67 ms",
        baseline="all keys and values, streamed a token ahead, float16 or int4",
        metric="time of a token, 95 % token match",
    ),
)
