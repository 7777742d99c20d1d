"""What a step sends: payload by the algorithms' closed forms, and what of it crosses which link, on the wire."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

from testbed.analysis.simulator.constants import Constants
from testbed.analysis.simulator.plan import StepPlan
from testbed.core import collective_costs
from testbed.core.collective_costs import cheapest
from testbed.core.paths import WIRE_RATIO
from testbed.core.topology import Topology


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
    payload, pairs = 0.0, defaultdict[tuple[str, str], float](float)
    sent: dict[tuple[str, str, int], int] = defaultdict(int)
    for bucket in plan.buckets:
        for one in bucket.collectives:
            sent[algorithm_of(plan.algorithm, one.kind, one.size_bytes, topology), one.kind, one.size_bytes] += 1
    for (algorithm, kind, size), times in sent.items() if len(topology.nodes) > 1 else ():
        payload += times * collective_costs.sent_bytes(algorithm, kind, size, topology)
        for pair, part in collective_costs.wan_bytes(algorithm, kind, size, topology).items():
            pairs[pair] += times * part
    return Traffic(payload, _links(dict(pairs), topology, constants), _access_s(payload, topology))


def algorithm_of(asked: str, kind: str, size: float, topology: Topology) -> str:
    """As testbed.worker.collectives.choice chooses."""
    if asked != "auto":
        return asked
    return "two_shot" if kind == "all_to_all" else cheapest(kind, size, topology)


def _links(pairs: dict[tuple[str, str], float], topology: Topology, constants: Constants) -> tuple[LinkTraffic, ...]:
    there = collective_costs.link_bytes(pairs, topology)
    back = collective_costs.link_bytes({(b, a): size for (a, b), size in pairs.items()}, topology)
    found = []
    for link in topology.wan_links:
        for source, _, profile in link.directions():
            key = link.name, source
            wire = WIRE_RATIO * there.get(key, 0.0) + constants.acknowledged * back.get(key, 0.0)
            if wire:
                found.append(LinkTraffic(link.name, source, wire, 8 * wire / profile.rate_bit_s))
    return tuple(found)


def _access_s(payload: float, topology: Topology) -> float:
    """Ranks send alike."""
    slowest = min((p.rate_bit_s for link in topology.access_links for _, _, p in link.directions()), default=0.0)
    return 8 * WIRE_RATIO * payload / len(topology.nodes) / slowest if slowest else 0.0
