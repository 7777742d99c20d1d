"""A spec and a profile made up for the simulator, small enough to be reckoned by hand."""

from __future__ import annotations

from typing import Any

from testbed.core.device.codecs.work import CodecTimes
from testbed.core.device.profile import Collective, LayerTimes, Profile
from testbed.core.spec.run_spec import Part, RunSpec
from topologies import two_regions

LAYERS = (("a", 300, 0.01), ("b", 2000, 0.02), ("c", 500, 0.04))
"""Name, parameters, seconds of backward; the last one's gradients come first."""


def spec(strategy: str = "ddp.DDP", bucket: str = "8 kB", workers: int = 2, **given: Any) -> RunSpec:
    parts = {
        "workload": Part("digits", "testbed.worker.workloads.digits.Digits"),
        "strategy": Part(strategy.partition(".")[0], f"testbed.worker.strategies.{strategy}", {"bucket_size": bucket}),
        "compressor": Part("none", "compressors.none.Uncompressed"),
        "device": Part("native", "testbed.core.device.Native"),
    }
    return RunSpec(topology=two_regions.build(workers=workers), steps=1, **{**parts, **given})


def profile(*buckets: int, rounds: int = 2, layers: tuple[tuple[str, int, float], ...] = LAYERS) -> Profile:
    collectives = [
        Collective(kind="all_reduce", size_bytes=4 * size + index) for size in buckets for index in range(rounds - 1)
    ]
    codec = [(("compress", 0.001), *[("decompress", 0.002)] * (rounds - 1)) for _ in set(buckets)]
    return Profile(
        workload="w",
        compressor="c",
        batch_size=1,
        layers=tuple(LayerTimes(name=n, parameters=p, forward_s=0.0, backward_s=b) for n, p, b in layers),
        forward_s=0.05,
        backward_s=0.07,
        optimizer_s=0.003,
        other_s=0.002,
        codec=tuple(
            CodecTimes(elements=size, rounds=one) for size, one in zip(sorted(set(buckets)), codec, strict=True)
        ),
        collectives=tuple(collectives),
    )
