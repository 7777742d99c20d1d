"""Costs of a run's collectives, by which communication is planned: their start and their seconds a byte."""

from __future__ import annotations

from testbed.core.costs.collective import (
    MESSAGE_CPU_S,
    NCCL_RING,
    OWN_MESSAGE_CPU_S,
    chain_seconds,
    cheapest,
    scaled_chunk_bytes,
    seconds,
)
from testbed.core.costs.fusion import Cost
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
    message_s = (MESSAGE_CPU_S if collective == "gloo" else OWN_MESSAGE_CPU_S) / spec.dilation
    hosts = Hosts(message_s + host.segment_s)

    def whole_s(size: float) -> float:
        return host.collective_s + seconds(collective, "all_reduce", width * size / count, topology, hosts=hosts)

    return Cost.fitted(whole_s, size_bytes)


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
