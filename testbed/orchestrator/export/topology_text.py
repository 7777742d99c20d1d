"""Topologies as text: a table of all, a drawing of one."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator, Sequence

from rich import box
from rich.table import Table

from testbed.core.spec.link_profile import LinkProfile
from testbed.core.spec.topology import Link, Topology
from testbed.core.spec.topology_svg import most_sources, spread
from testbed.core.units import format_rate, format_size, format_time

_MAX_DRAWN_LINKS = 6
"""More WAN links than this make a matrix."""


def table(topologies: Sequence[Topology]) -> Table:
    """One row each: what its WAN links are, or its access links where it has none."""
    view = Table(box=box.SIMPLE_HEAD)
    for heading in ("topology", "regions", "WAN links", "rate", "RTT", "source"):
        view.add_column(heading, overflow="fold", justify="right" if heading == "WAN links" else "left")
    for topology in topologies:
        links = topology.wan_links or topology.access_links
        profiles = [profile for link in links for _, _, profile in link.directions()]
        view.add_row(
            topology.name,
            _regions(topology),
            str(len(topology.wan_links)),
            spread((profile.rate_bit_s for profile in profiles), format_rate),
            spread((link.rtt_s for link in links), _time),
            _short(profile.source for profile in profiles),
        )
    return view


def drawing(topology: Topology) -> str:
    """Regions with their workers, and what joins them."""
    wan = topology.wan_links
    lines = [f"{topology.name}: {len(topology.nodes)} workers, regions: {', '.join(topology.regions)}"]
    if len(wan) <= _MAX_DRAWN_LINKS:
        for link in wan:
            lines += ["", *_wan(link)]
    else:
        lines += ["", *_matrices(topology)]
    if wan:
        lines += ["", *(f"source: {source}" for source in most_sources(wan))]
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


def _matrices(topology: Topology) -> Iterator[str]:
    """Round trips, and rates from the line's region to the column's; in one square where rates have no direction."""
    regions = topology.regions
    order = {region: index for index, region in enumerate(regions)}
    rtts, rates = {}, {}
    for link in topology.wan_links:
        for start, end, profile in link.directions():
            rtts[start, end] = f"{link.rtt_s * 1e3:.4g}"
            rates[start, end] = f"{profile.rate_bit_s / 1e6:.5g}"
    if all(rates[a, b] == rates[b, a] for a, b in rates):
        yield "RTT in ms above the diagonal, rate in Mbit/s below it"
        yield from _square(regions, {pair: (rtts if order[pair[0]] < order[pair[1]] else rates)[pair] for pair in rtts})
    else:
        yield "RTT in ms"
        yield from _square(regions, rtts)
        yield from ("", "rate in Mbit/s, from the line's region to the column's")
        yield from _square(regions, rates)
    others = {_others(profile) for link in topology.wan_links for _, _, profile in link.directions()} - {""}
    yield from (f"WAN links: {words}" for words in sorted(others))


def _square(regions: Sequence[str], cells: dict[tuple[str, str], str]) -> Iterator[str]:
    wide = max(map(len, regions))
    widths = [
        max(len(str(index)), *(len(cells.get((row, column), ".")) for row in regions))
        for index, column in enumerate(regions, 1)
    ]
    head = "  ".join(f"{index:>{width}}" for index, width in enumerate(widths, 1))
    yield f"  {'':{wide + 5}}{head}"
    for index, row in enumerate(regions, 1):
        texts = [cells.get((row, column), "-" if row == column else ".") for column in regions]
        cells_of_row = "  ".join(f"{text:>{width}}" for text, width in zip(texts, widths, strict=True))
        yield f"  {index:>2} {row:{wide}}  {cells_of_row}"


def _members(topology: Topology, region: str) -> Iterator[str]:
    ranks = {node.name: rank for rank, node in enumerate(topology.nodes) if node.region == region}
    access = {end: link for link in topology.access_links for end in (link.a, link.b)}
    if not ranks:
        yield "  no workers, passes packets on"
    for index, (name, rank) in enumerate(ranks.items()):
        branch = "└─" if index == len(ranks) - 1 else "├─"
        link = access.get(name)
        yield f"  {branch} {name}  rank {rank}" + (f"  {_profile(link.forward)}" if link else "")


def _profile(profile: LinkProfile) -> str:
    delay = f"delay {_time(profile.delay_s)}" if profile.delay_s else ""
    flow = f"one TCP flow had {format_rate(profile.flow_rate_bit_s)} there" if profile.flow_rate_bit_s else ""
    return ", ".join(filter(None, (format_rate(profile.rate_bit_s), delay, _others(profile), flow)))


def _others(profile: LinkProfile) -> str:
    """What a direction does besides its rate and delay; nothing for one that is plain."""
    parts = []
    if profile.jitter_s:
        parts.append(f"jitter {_time(profile.jitter_s)} ({profile.jitter_distribution})")
    if profile.loss_ratio:
        bursts = f" in bursts of {profile.loss_burst_packets:g}" if profile.loss_burst_packets else ""
        parts.append(f"loss {profile.loss_ratio:.3%}{bursts}")
    for what, ratio in (("duplicates", profile.duplicate_ratio), ("reorders", profile.reorder_ratio)):
        if ratio:
            parts.append(f"{what} {ratio:.3%}")
    if profile.limit_bytes:
        parts.append(f"queue {format_size(profile.limit_bytes)}")
    return ", ".join(parts)


def _regions(topology: Topology) -> str:
    """Names where there are few, and how many where there are many."""
    names = ", ".join(topology.regions)
    return names if len(topology.regions) <= 5 else f"{len(topology.regions)}: {names}"


def _short(sources: Iterable[str]) -> str:
    texts = dict.fromkeys(textwrap.shorten(source.partition(", github")[0], 60, placeholder=" …") for source in sources)
    return "; ".join(texts)


def _time(time_s: float) -> str:
    return format_time(time_s) if time_s else "0 s"
