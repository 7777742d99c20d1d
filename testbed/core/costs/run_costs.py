"""Costs of a run's collectives, by which communication is planned: their start and their seconds a byte."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from testbed.core.costs.collective import (
    MESSAGE_CPU_S,
    NCCL_RING,
    OWN_MESSAGE_CPU_S,
    SUMS_ALONE,
    chain_seconds,
    cheapest,
    scaled_chunk_bytes,
    seconds,
)
from testbed.core.costs.fusion import Cost
from testbed.core.costs.sockets import Cluster, Gloo, Nccl
from testbed.core.device.host_costs import HostCosts
from testbed.core.spec.paths import Hosts
from testbed.core.spec.run_spec import RunSpec
from testbed.core.spec.scale import shared_topology
from testbed.core.spec.topology import Topology


def of_one_connection(spec: RunSpec, collective: str) -> tuple[int, Topology]:
    """Return among how many connections a run cuts its messages, and the network as each of them has it.

    NCCL's ring has its own sockets, which its closed form counts.
    """
    count = 1 if collective == NCCL_RING else spec.connections or 1
    return count, shared_topology(spec.topology, count)


def all_reduce_cost(spec: RunSpec, collective: str, size_bytes: float, width: float) -> Cost:
    """Return the cost of sums of buckets.

    Args:
        size_bytes: Bytes of all gradients, as float32.
        width: Bytes sent for a byte of gradient.
    """
    count, topology = of_one_connection(spec, collective)
    if collective == "auto":
        collective = cheapest("all_reduce", width * size_bytes / count, topology)
    host = HostCosts.of(spec.device)
    hosts = Hosts((MESSAGE_CPU_S if collective == "gloo" else OWN_MESSAGE_CPU_S) / spec.dilation)
    segments_s = _segments_cost(spec, collective)

    def whole_s(size: float) -> float:
        sent = width * size
        messages_s = seconds(collective, "all_reduce", sent / count, topology, hosts=hosts)
        return host.collective_s + messages_s + segments_s(sent)

    return Cost.fitted(whole_s, size_bytes)


def _segments_cost(spec: RunSpec, collective: str) -> Callable[[float], float]:
    """Return what the host's time for each segment, or slice, adds to an all-reduce of so many bytes.

    It is the difference that it makes in the library's closed form: nothing where the wire takes longer.
    """
    if collective not in SUMS_ALONE or not HostCosts.of(spec.device).segment_s:
        return lambda _: 0.0
    library = (Nccl if collective == NCCL_RING else Gloo).of(spec)
    free, cluster = replace(library, host_s=0.0), Cluster.of(spec.topology)
    return lambda size: library.all_reduce_s(size, cluster) - free.all_reduce_s(size, cluster)


def chain_cost(spec: RunSpec, size_bytes: float) -> Cost:
    """Return the cost of a broadcast from one rank, or a reduction to one, by a pipelined chain of all.

    Args:
        size_bytes: Bytes of the largest.
    """
    count, topology = of_one_connection(spec, "ring")
    hosts, chunk_bytes = Hosts(OWN_MESSAGE_CPU_S / spec.dilation), scaled_chunk_bytes(spec.scale) / count
    start_s = HostCosts.of(spec.device).collective_s
    return Cost.fitted(
        lambda size: start_s + chain_seconds(size / count, topology, hosts=hosts, chunk_bytes=chunk_bytes), size_bytes
    )
