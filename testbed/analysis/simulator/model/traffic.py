"""What a step sends: payload by the algorithms' closed forms, and what of it crosses which link, on the wire."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

from testbed.analysis.simulator.model.constants import Constants
from testbed.analysis.simulator.model.step_plan import StepPlan
from testbed.core.costs import collective
from testbed.core.costs.collective import Pairs, cheapest
from testbed.core.costs.kfac_plan import broadcast_bytes
from testbed.core.device.factored_layer import ELEMENT_BYTES
from testbed.core.device.profile import Collective
from testbed.core.spec.paths import wire_ratio
from testbed.core.spec.topology import Topology

SEGMENT_BYTES = 2**20
"""gloo's largest part of a tensor that is sent at once."""
IN_FLIGHT = 2
"""Messages that gloo's rings begin before they wait for the first."""


@dataclass(frozen=True)
class LinkTraffic:
    """Over one direction of a WAN link in one step."""

    name: str
    source: str
    wire_bytes: float
    carrying_s: float
    """What its rate needs for them."""


@dataclass(frozen=True)
class Traffic:
    """Of all ranks together in one step."""

    payload_bytes: float
    wan: tuple[LinkTraffic, ...]
    access_s: float
    """What the busiest access link needs."""

    @property
    def wan_wire_bytes(self) -> float:
        return sum(link.wire_bytes for link in self.wan)


def traffic(plan: StepPlan, topology: Topology, constants: Constants) -> Traffic:
    sent = _Sent.of(plan, topology)
    return Traffic(sent.payload, _links(sent, topology, constants), _access_s(sent.payload, topology))


@dataclass(frozen=True)
class _Sent:
    """In one step, on all ranks."""

    payload: float
    pairs: Pairs
    """Bytes, by (from region, to region)."""
    messages: Pairs
    """Likewise, of what they are sent as."""

    @classmethod
    def of(cls, plan: StepPlan, topology: Topology) -> _Sent:
        payload = 0.0
        pairs, messages = defaultdict[tuple[str, str], float](float), defaultdict[tuple[str, str], float](float)
        times = defaultdict[tuple[str, str, int], float](float)
        for algorithm, one in _collectives(plan):
            times[algorithm_of(algorithm, one.kind, one.size_bytes, topology), one.kind, one.size_bytes] += one.share
        for (algorithm, kind, size), count in times.items() if len(topology.nodes) > 1 else ():
            payload += count * collective.sent_bytes(algorithm, kind, size, topology)
            each = size / messages_of(kind, size, len(topology.nodes))
            for pair, part in collective.wan_bytes(algorithm, kind, size, topology).items():
                pairs[pair] += count * part
                messages[pair] += count * part / each
        if plan.buffers_bytes and len(topology.nodes) > 1:
            payload += (len(topology.nodes) - 1) * plan.buffers_bytes
            for pair in _broadcast_pairs(topology, along_ring=plan.algorithm == collective.NCCL_RING):
                pairs[pair] += plan.buffers_bytes
                messages[pair] += 1
        chunk_bytes = plan.second_order.chunk_bytes if plan.second_order is not None else 0.0
        for root, towards, elements in _chains(plan) if len(topology.nodes) > 1 else ():
            payload += broadcast_bytes(elements, len(topology.nodes))
            size = ELEMENT_BYTES * elements
            for pair in _neighbours(topology, root, towards):
                pairs[pair] += size
                messages[pair] += collective.chain_chunks(size, len(topology.nodes), chunk_bytes)
        return cls(payload, dict(pairs), dict(messages))


def _collectives(plan: StepPlan) -> Iterator[tuple[str, Collective]]:
    """What all ranks take part in alike, and the algorithm of it."""
    for bucket in plan.buckets:
        for one in bucket.collectives:
            yield plan.algorithm, one
    if plan.average is not None:
        yield plan.algorithm, plan.average
    if (second := plan.second_order) is not None:
        for group in second.groups:
            if group.owner is None:
                yield plan.algorithm, Collective(kind="all_reduce", size_bytes=ELEMENT_BYTES * group.elements)
        if second.traces:
            yield "gloo", Collective(kind="all_reduce", size_bytes=ELEMENT_BYTES * second.traces)


def _chains(plan: StepPlan) -> Iterator[tuple[int, int, int]]:
    """Root, in which direction ranks send, and elements."""
    if (second := plan.second_order) is not None:
        for group in second.groups:
            if group.owner is not None:
                yield group.owner, -1, group.elements
        for owner, elements in enumerate(second.results):
            if elements:
                yield owner, 1, elements


def _neighbours(topology: Topology, root: int, towards: int) -> Iterator[tuple[str, str]]:
    """Each two ranks of a chain, from the one that sends, that lie in two regions."""
    size = len(topology.nodes)
    for step in range(size - 1):
        rank = root + step if towards > 0 else root - 1 - step
        a, b = (topology.nodes[at % size].region for at in (rank, rank + towards))
        if a != b:
            yield a, b


def _broadcast_pairs(topology: Topology, *, along_ring: bool) -> Iterator[tuple[str, str]]:
    """Yield (from, to) of each message of a broadcast by rank 0 that crosses regions: along a ring, or down a tree."""
    for rank in range(1, len(topology.nodes)):
        sender = rank - 1 if along_ring else rank - (1 << (rank.bit_length() - 1))
        a, b = topology.nodes[sender].region, topology.nodes[rank].region
        if a != b:
            yield a, b


def messages_of(kind: str, size: float, world_size: int) -> int:
    """As how many messages gloo sends `size` bytes over one hop; our own algorithms are taken to do likewise."""
    if kind == "all_gather":
        return IN_FLIGHT
    if kind == "all_to_all":
        return world_size
    return world_size * max(IN_FLIGHT, math.ceil(math.ceil(size / SEGMENT_BYTES) / world_size))


def algorithm_of(asked: str, kind: str, size: float, topology: Topology) -> str:
    """As testbed.worker.communication.collectives.algorithm_selection chooses."""
    if asked != "auto":
        return asked
    return "two_shot" if kind == "all_to_all" else cheapest(kind, size, topology)


def _links(sent: _Sent, topology: Topology, constants: Constants) -> tuple[LinkTraffic, ...]:
    bytes_there, messages_there = (collective.link_bytes(of, topology) for of in (sent.pairs, sent.messages))
    bytes_back, messages_back = (
        collective.link_bytes({(b, a): count for (a, b), count in of.items()}, topology)
        for of in (sent.pairs, sent.messages)
    )
    found = []
    for link in topology.wan_links:
        for source, _, profile in link.directions():
            key = link.name, source
            messages = messages_there.get(key, 0.0) + messages_back.get(key, 0.0)
            wire = (
                profile.wire_ratio * bytes_there.get(key, 0.0)
                + constants.acknowledged * bytes_back.get(key, 0.0)
                + constants.message_bytes * messages
            )
            if wire:
                found.append(LinkTraffic(link.name, source, wire, 8 * wire / profile.rate_bit_s))
    return tuple(found)


def _access_s(payload: float, topology: Topology) -> float:
    """Ranks send alike."""
    slowest = min((p.rate_bit_s for link in topology.access_links for _, _, p in link.directions()), default=0.0)
    return 8 * wire_ratio(topology) * payload / len(topology.nodes) / slowest if slowest else 0.0
