"""Topologies as text: a table of all, a drawing of one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich import box
from rich.table import Table

from testbed.core.topology import Link, LinkProfile, Topology
from testbed.core.units import format_rate, format_time


def table(topologies: Sequence[Topology]) -> Table:
    """One row each: what its WAN links are, or its access links where it has none."""
    view = Table(box=box.SIMPLE_HEAD)
    for heading in ("topology", "regions", "rate", "RTT", "source"):
        view.add_column(heading, overflow="fold")
    for topology in topologies:
        links = topology.wan_links or topology.access_links
        view.add_row(
            topology.name,
            ", ".join(topology.regions),
            _each(format_rate(profile.rate_bit_s) for link in links for _, _, profile in link.directions()),
            _each(_time(link.rtt_s) for link in links),
            _each(profile.source for link in links for _, _, profile in link.directions()),
        )
    return view


def drawing(topology: Topology) -> str:
    """Regions with their workers, and what joins them."""
    lines = [f"{topology.name}: {len(topology.nodes)} workers, regions: {', '.join(topology.regions)}"]
    for link in topology.wan_links:
        lines += ["", *_wan(link)]
    for region in topology.regions:
        lines += ["", region, *_members(topology, region)]
    return "\n".join(lines)


def _wan(link: Link) -> Iterator[str]:
    yield f"{link.a} ══ WAN ══ {link.b}   RTT {_time(link.rtt_s)}"
    if link.forward == link.backward:
        yield f"  each way  {_profile(link.forward)}"
    else:
        for start, end, profile in link.directions():
            yield f"  {start} -> {end}  {_profile(profile)}"
    for source in dict.fromkeys((link.forward.source, link.backward.source)):
        yield f"  source: {source}"


def _members(topology: Topology, region: str) -> Iterator[str]:
    ranks = {node.name: rank for rank, node in enumerate(topology.nodes) if node.region == region}
    access = {end: link for link in topology.access_links for end in (link.a, link.b)}
    for index, (name, rank) in enumerate(ranks.items()):
        branch = "└─" if index == len(ranks) - 1 else "├─"
        link = access.get(name)
        yield f"  {branch} {name}  rank {rank}" + (f"  {_profile(link.forward)}" if link else "")


def _profile(profile: LinkProfile) -> str:
    parts = [format_rate(profile.rate_bit_s)]
    if profile.delay_s:
        parts.append(f"delay {_time(profile.delay_s)}")
    if profile.jitter_s:
        parts.append(f"jitter {_time(profile.jitter_s)}")
    if profile.loss_ratio:
        parts.append(f"loss {profile.loss_ratio:.3%}")
    return ", ".join(parts)


def _time(time_s: float) -> str:
    return format_time(time_s) if time_s else "0 s"


def _each(texts: Iterator[str]) -> str:
    return "; ".join(dict.fromkeys(texts))
