"""What happens to links and nodes while a run goes on, as plain data on the emulated clock."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field

from testbed.core.spec.link_profile import LinkProfile
from testbed.core.spec.topology import Link, Topology

LINK_KINDS = ("set", "down", "up")
NODE_KINDS = ("crash", "leave", "join")
SETTABLE = ("rate_bit_s", "delay_s", "jitter_s", "loss_ratio")


@dataclass(frozen=True, kw_only=True)
class Change:
    """One thing that happens at one moment.

    Whatever a user writes (a flap, a partition, a trace) is compiled to these.
    """

    t_s: float
    """Emulated seconds since step 1 began."""
    kind: str
    """One of `LINK_KINDS` or `NODE_KINDS`."""
    link: str | None = None
    source: str | None = None
    """The end of the link at which the direction begins; None means both directions."""
    node: str | None = None
    values: dict[str, float] = field(default_factory=dict)
    """Of a "set": the new values of `SETTABLE` fields of `LinkProfile`, absolute, in base units."""
    cause: str = ""
    """What the user wrote, for the record."""

    def faults(self, ends_of_link: dict[str, tuple[str, str]], nodes: Collection[str]) -> Iterator[str]:
        where = f"events: {self.cause or self.kind} at {self.t_s:g} s"
        if not (math.isfinite(self.t_s) and self.t_s >= 0):
            yield f"{where}: time must be 0 or later"
        if self.kind in LINK_KINDS:
            if self.link not in ends_of_link:
                yield f"{where}: unknown WAN link {self.link!r}; known: {', '.join(ends_of_link) or 'none'}"
            elif self.source is not None and self.source not in ends_of_link[self.link]:
                yield f"{where}: link {self.link} begins at {' or '.join(ends_of_link[self.link])}, not {self.source!r}"
            for key in self.values.keys() - set(SETTABLE):
                yield f"{where}: {key} cannot be set; known: {', '.join(SETTABLE)}"
        elif self.kind in NODE_KINDS:
            if self.node not in nodes:
                yield f"{where}: unknown node {self.node!r}; known: {', '.join(nodes)}"
        else:
            yield f"{where}: unknown kind {self.kind!r}; known: {', '.join(LINK_KINDS + NODE_KINDS)}"


def outermost(topology: Topology, changes: Iterable[Change]) -> Topology:
    """Each direction with the highest rate and the longest delay it ever has, whether or not at one moment.

    What queues, buffers and time-outs have to bear.
    """
    most: dict[tuple[str, str | None, str], float] = {}
    for change in changes:
        for name in ("rate_bit_s", "delay_s"):
            if change.link is not None and name in change.values:
                key = change.link, change.source, name
                most[key] = max(most.get(key, 0.0), change.values[name])
    if not most:
        return topology
    return dataclasses.replace(topology, links=tuple(_outermost(link, most) for link in topology.links))


def _outermost(link: Link, most: dict[tuple[str, str | None, str], float]) -> Link:
    def of(profile: LinkProfile, source: str) -> LinkProfile:
        values = {
            name: max(getattr(profile, name), *(most.get((link.name, end, name), 0.0) for end in (source, None)))
            for name in ("rate_bit_s", "delay_s")
        }
        return dataclasses.replace(profile, **values)

    return dataclasses.replace(link, forward=of(link.forward, link.a), backward=of(link.backward, link.b))


@dataclass(frozen=True, kw_only=True)
class Background:
    """Traffic of others on one direction of a WAN link: TCP flows that come at random and share the link's queue.

    Flows begin as a Poisson process; their sizes are Pareto distributed (shape 1.5, few large ones carry most bytes).
    """

    link: str
    source: str
    """The end at which the direction begins."""
    load_ratio: float
    """Mean offered load over the link's capacity."""
    mean_flow_bytes: int = 1_000_000
    seed: int = 0

    def faults(self, ends_of_link: dict[str, tuple[str, str]]) -> Iterator[str]:
        where = f"background: link {self.link}" + (f" from {self.source}" if self.source else "")
        if self.link not in ends_of_link:
            yield f"{where}: unknown WAN link; known: {', '.join(ends_of_link) or 'none'}"
        elif self.source not in ends_of_link[self.link]:
            yield f"{where}: this link begins at {' or '.join(ends_of_link[self.link])}"
        if not 0 < self.load_ratio <= 2:
            yield f"{where}: load must be above 0 and at most 2 times the capacity, found {self.load_ratio:g}"
        if self.mean_flow_bytes < 1000:
            yield f"{where}: mean flow must be at least 1 kB, found {self.mean_flow_bytes} bytes"
