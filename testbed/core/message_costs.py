"""What plans of communication go by: a collective's start and its seconds a byte, over the links of a run.

By closed form, and with what messages take of a core, which under dilation is that much less of an emulated second.
"""

from __future__ import annotations

from testbed.core.auto_dilation import MESSAGE_CPU_S, OWN_MESSAGE_CPU_S
from testbed.core.collective_costs import chain_seconds, cheapest, scaled_chunk_bytes, seconds
from testbed.core.fusion import Cost
from testbed.core.paths import Hosts
from testbed.core.spec import RunSpec


def all_reduce_cost(spec: RunSpec, collective: str, size_bytes: float, width: float) -> Cost:
    """Of sums of buckets.

    Args:
        size_bytes: of all gradients, as float32.
        width: bytes sent for a byte of gradient.
    """
    if collective == "auto":
        collective = cheapest("all_reduce", width * size_bytes, spec.topology)
    hosts = Hosts((MESSAGE_CPU_S if collective == "gloo" else OWN_MESSAGE_CPU_S) / spec.dilation)
    return Cost.fitted(
        lambda size: seconds(collective, "all_reduce", width * size, spec.topology, hosts=hosts), size_bytes
    )


def chain_cost(spec: RunSpec, size_bytes: float) -> Cost:
    """Of a broadcast from one rank, or a reduction to one, by a pipelined chain of all.

    Args:
        size_bytes: of the largest.
    """
    hosts, chunk_bytes = Hosts(OWN_MESSAGE_CPU_S / spec.dilation), scaled_chunk_bytes(spec.scale)
    return Cost.fitted(
        lambda size: chain_seconds(size, spec.topology, hosts=hosts, chunk_bytes=chunk_bytes), size_bytes
    )
