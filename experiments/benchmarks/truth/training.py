"""DDP and DiLoCo on four L40S behind tbf: exchanges as published, and as the closed form of NCCL's ring has them."""

from __future__ import annotations

import functools
import statistics
from dataclasses import dataclass

from experiments.benchmarks.truth.published import LINKS, MTU_BYTES, content_of
from testbed.core.costs.sockets import MIB, NCCL, Cluster

ROUND_TRIP_S = 0.12e-3
"""Inside the published 0.1 to 0.3 ms; an all-reduce then starts up in the 0.3 ms that 5 Gbit/s shows."""
MODEL_BYTES = 4 * 30_846_720
EMBEDDING_BYTES, LAYER_BYTES, NORM_BYTES = 51_463_168, (786_432, 786_432, 786_432, 786_432, 262_144), 1_024
LAYERS = 6
"""Layers of the model, each of five matrices and two norms; two embeddings and a norm are outside.

Worked out from the number of parameters and of tensors.
"""
TENSORS_BYTES = (EMBEDDING_BYTES,) * 2 + (*LAYER_BYTES, NORM_BYTES, NORM_BYTES) * LAYERS + (NORM_BYTES,)
BUCKETS_BYTES = (EMBEDDING_BYTES, MODEL_BYTES - EMBEDDING_BYTES)
"""DDP's buckets: one embedding is more than torch's first one holds, everything else is in the second."""
CACHES_BYTES = LAYERS * 131_072 * 8 * 8
"""Rotary caches, a buffer of each layer: complex numbers of 8 bytes. DDP sends buffers from rank 0 in each forward."""
FORWARD_SHARE = 1 / 3
"""Share of computing before the first bucket can leave; a forward costs half of a backward."""
INTERVAL = 8
"""Steps between two exchanges of the published DiLoCo rows."""


@dataclass(frozen=True, kw_only=True)
class Exchange:
    """The time of a synchronisation, in seconds: published, and predicted."""

    link: str
    measured_s: float
    ideal_s: float
    """Time of an ideal ring."""
    form_s: float

    @property
    def error(self) -> float:
        return self.form_s / self.measured_s - 1


def cluster(link: str) -> Cluster:
    return Cluster(nodes=4, rate_bit_s=LINKS[link], round_trip_s=ROUND_TRIP_S, mtu_bytes=MTU_BYTES)


def diloco(link: str) -> Exchange:
    """Return the exchange of DiLoCo at intervals of `INTERVAL`: an all-reduce for each tensor."""
    measured_s = statistics.median(_published("diloco", link, "sync_blocked_ms"))
    return Exchange(link=link, measured_s=measured_s, ideal_s=ring_s(link), form_s=exchange_s(link))


def ddp(link: str, *, with_buffers: bool = True, by_diloco: bool = True) -> Exchange:
    """Return a step of DDP, computing included.

    Args:
        with_buffers: The broadcast of rotary caches goes ahead of forward.
        by_diloco: What is sent takes as many times its form as DiLoCo's exchange does at that rate.
    """
    of, computed_s = cluster(link), computing_s()
    factor = diloco(link).measured_s / exchange_s(link) if by_diloco else 1.0
    reduced_s = sum(NCCL.all_reduce_s(size, of) for size in BUCKETS_BYTES)
    buffers_s = NCCL.broadcast_s(CACHES_BYTES, of) if with_buffers else 0.0
    measured_s = statistics.median(_published("ddp", link, "sync_blocked_ms")) + computed_s
    form_s = factor * (reduced_s + buffers_s) + FORWARD_SHARE * computed_s
    return Exchange(link=link, measured_s=measured_s, ideal_s=ring_s(link), form_s=form_s)


def exchange_s(link: str) -> float:
    """Return the closed form of one all-reduce for each tensor, one after another."""
    return sum(NCCL.all_reduce_s(size, cluster(link)) for size in TENSORS_BYTES)


def ring_s(link: str) -> float:
    """Return the time of an ideal ring: its bytes at the link's rate."""
    of = cluster(link)
    return 2 * (of.nodes - 1) / of.nodes * of.carrying_s(MODEL_BYTES, NCCL.connections)


def inner_step_s(link: str) -> float:
    """Return the published time of a step without exchange."""
    return statistics.median(_published("diloco", link, "inner_step_ms"))


def computing_s() -> float:
    """Return what a step of DDP computes, as its steps and the time that they were blocked have it on all links."""
    return statistics.median(
        step - blocked
        for link in LINKS
        for step, blocked in zip(
            _published("ddp", link, "sync_step_ms"), _published("ddp", link, "sync_blocked_ms"), strict=True
        )
    )


@functools.cache
def _published(method: str, link: str, key: str) -> tuple[float, ...]:
    """Return `key` of each repeat, in seconds."""
    rows = content_of("diloco-tbf")["rows"]
    return tuple(row[key] / 1e3 for row in rows if row["method"] == method and row["bandwidth"] == link)


UNSHAPED_BIT_S = 14.883e9 * 9015 / 8949
"""Rate that rings of 64 MiB reached on this cluster before it was shaped, headers counted."""


def unshaped() -> list[tuple[int, float, float]]:
    """Return MiB, measured and predicted seconds of all-reduces without shaping; the rate is one of these rows'."""
    of = Cluster(nodes=4, rate_bit_s=UNSHAPED_BIT_S, round_trip_s=ROUND_TRIP_S, mtu_bytes=MTU_BYTES)
    return [
        (row["message_MiB"], row["all_reduce_ms"] / 1e3, NCCL.all_reduce_s(row["message_MiB"] * MIB, of))
        for row in content_of("nccl-sizes-unshaped")["rows"]
    ]
