"""A network that a file describes link by link."""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, cast

from testbed.core.errors import InputError
from testbed.core.kinds import Kind
from testbed.core.parameters import Count, Rate
from testbed.core.spec.link_profile import MIN_RATE_BIT_S, LinkProfile
from testbed.core.spec.topology import MAX_WORKERS, Link, Topology, symmetric
from topologies.parameters import Cap, Impairments, Name, Parameters
from topologies.parts import LAN_RATE, access_links, nodes_in

_PROFILE = ("rate", *Impairments.__annotations__, "flow_rate", "source")
_LINK = ("name", "a", "b", "rtt", *_PROFILE, "forward", "backward")
_DIRECTION = ("delay", *_PROFILE)


@dataclass(frozen=True)
class _RegionsOrWorkers(Kind):
    type_text = "list of names, or workers by name"

    def allows(self, value: object) -> bool:
        return isinstance(value, list | dict)


@dataclass(frozen=True)
class _Links(Kind):
    type_text = "list of links"

    def allows(self, value: object) -> bool:
        return isinstance(value, list)


def build(
    *,
    name: Name = "described",
    workers: Count = 4,
    regions: Annotated[list[str] | dict[str, int], _RegionsOrWorkers()],
    links: Annotated[list[Any], _Links()],
    rate: Cap = "",
    lan_rate: Rate = LAN_RATE,
    source: Name = "",
) -> Topology:
    """Return the network of regions and WAN links that a user lists.

    A link is a mapping: `a` and `b`, the regions it joins; `rate`, each way; `rtt`, both ways together; and optionally
    `name`, `flow_rate`, `source` and the parameters of `topologies.parameters.Impairments`. `forward` (from a to b)
    and `backward` may hold any of these again for one direction, with `delay`, one way, instead of `rtt`.

    Args:
        regions: Names of the regions, over which workers are spread in blocks; or numbers of workers by name, where 0
            makes a router.
        links: WAN links.
        rate: Highest rate of a WAN link; empty: as each link says.
        lan_rate: Rate of a worker's access link.
        source: Source of the figures of links that name none.

    Raises:
        InputError: A parameter is wrong; every error at once, each with its key.
    """
    read = Parameters()
    cap_bit_s = read.cap(rate)
    lan_rate_bit_s = read.lan_rate(lan_rate)
    counts = _counts(read, name, regions, workers)
    found = [_link(read, f"topo.links[{index}]", link, counts, source, cap_bit_s) for index, link in enumerate(links)]
    wan = tuple(link for link in found if link is not None)
    nodes = nodes_in(counts)
    try:
        topology = Topology(
            name=name, regions=tuple(counts), nodes=nodes, links=(*wan, *access_links(nodes, lan_rate_bit_s))
        )
    except InputError as error:
        # of a link that could not be read the graph knows nothing, so what it lacks may be there
        read.add(fault for fault in error.faults if len(wan) == len(found) or "no path to" not in fault)
        topology = None
    read.raise_faults()
    assert topology is not None
    return topology


def _counts(read: Parameters, name: str, regions: list[str] | dict[str, int], workers: int) -> dict[str, int]:
    """Return the number of workers of each region."""
    if not isinstance(regions, dict):
        return read.placed(workers, read.regions(regions))
    counts: dict[str, int] = {}
    read.names("topo.regions", map(str, regions))
    for region, count in regions.items():
        if isinstance(count, bool) or not isinstance(count, int) or not 0 <= count <= MAX_WORKERS:
            read.add([f"topo.regions.{region}={count!r}: must be how many workers it has, from 0 to {MAX_WORKERS}"])
            count = 0
        counts[str(region)] = count
    total = sum(counts.values())
    if read.faults:
        return counts
    if total > MAX_WORKERS:
        read.add([f"topo.regions: {total} workers in all; must be at most {MAX_WORKERS}, give fewer"])
        return dict.fromkeys(counts, 0)
    if not total:
        read.add(["topo.regions: no region has a worker; give at least one of them some"])
    elif total != workers:
        read.add([f"workers={workers}: the regions of {name} lay down {total} in all; leave workers out"])
    return counts


def _link(
    read: Parameters, where: str, link: Any, regions: Iterable[str], source: str, cap_bit_s: float | None
) -> Link | None:
    """Return the link, or None if its values make none."""
    if not isinstance(link, Mapping):
        read.add([f"{where}: must hold {', '.join(_LINK[:3])}, rate and rtt, found {link!r}"])
        return None
    _known_keys(read, where, link, _LINK)
    a, b = ends = _ends(read, where, link, regions)
    if "name" in link:
        read.names(f"{where}.name", [str(link["name"])], are_links=True)
    ways = {way: _way(read, where, way, link) for way in ("forward", "backward")}
    for key, own in (("rate", "rate"), ("rtt", "delay")):
        if key not in link and not all(own in values for values in ways.values()):
            read.add([f"{where}.{key}: must be given, or {own} in both forward and backward"])
    rtt_s = read.time(f"{where}.rtt", link.get("rtt", 0))
    rate_bit_s = read.rate(f"{where}.rate", link["rate"]) if "rate" in link else MIN_RATE_BIT_S
    shared = symmetric(
        str(link.get("name", f"{a}-{b}")), a, b, wan=True, rtt_s=rtt_s, rate_bit_s=rate_bit_s, source="-"
    )
    delays = {
        way: read.time(f"{where}.{way}.delay", own["delay"]) if "delay" in own else shared.forward.delay_s
        for way, own in ways.items()
    }
    profiles = {
        way: _profile(
            read, where, way, {"source": source, **link}, own, rate_bit_s, delays[way], sum(delays.values()), cap_bit_s
        )
        for way, own in ways.items()
    }
    if "" in ends:
        return None
    return dataclasses.replace(shared, forward=profiles["forward"], backward=profiles["backward"])


def _profile(
    read: Parameters,
    where: str,
    way: str,
    link: Mapping[str, Any],
    own: Mapping[str, Any],
    rate_bit_s: float,
    delay_s: float,
    rtt_s: float,
    cap_bit_s: float | None,
) -> LinkProfile:
    """Return the profile of one direction: values of the link, replaced by those of this direction."""
    both = {key: link[key] for key in _PROFILE if key in link and key not in own}
    source = own.get("source") or both.get("source") or ""
    if not isinstance(source, str):
        read.add([f"{where}.source: must be text, found {source!r:.80}"])
        source = "-"
    source = source.strip()
    if "rate" in own:
        rate_bit_s = read.rate(f"{where}.{way}.rate", own["rate"])
    if not source:
        read.add([f"{where}.source: must say where the numbers come from, or 'assumed: why'"])
    if cap_bit_s is not None and cap_bit_s < rate_bit_s:
        rate_bit_s, source = cap_bit_s, f"rate assumed: held at topo.rate; the rest: {source}"
    fields: dict[str, Any] = {}
    for place, values in ((where, both), (f"{where}.{way}", own)):
        known = {key: value for key, value in values.items() if key in Impairments.__annotations__}
        fields |= read.impairments(cast(Impairments, known), rate_bit_s, rtt_s, place)
        if "flow_rate" in values:
            fields["flow_rate_bit_s"] = read.rate(f"{place}.flow_rate", values["flow_rate"])
    return LinkProfile(rate_bit_s=rate_bit_s, delay_s=delay_s, source=source or "-", **fields)


def _way(read: Parameters, where: str, way: str, link: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values that are given for one direction alone."""
    found = link.get(way)
    if found is None:
        return {}
    if not isinstance(found, Mapping):
        read.add([f"{where}.{way}: must hold what differs in this direction, such as rate, found {found!r}"])
        return {}
    _known_keys(read, f"{where}.{way}", found, _DIRECTION)
    return dict(found)


def _ends(read: Parameters, where: str, link: Mapping[str, Any], regions: Iterable[str]) -> tuple[str, str]:
    """Return both regions; "" for an unknown one."""
    known = list(regions)
    a, b = (str(link.get(key, "")) for key in ("a", "b"))
    for key, end in (("a", a), ("b", b)):
        if end not in known:
            read.add([f"{where}.{key}: must be one of the regions ({', '.join(known)}), found {end or 'none'}"])
    if a == b and a in known:
        read.add([f"{where}.b: {b} is the link's other end too"])
        b = ""
    return a if a in known else "", b if b in known else ""


def _known_keys(read: Parameters, where: str, values: Mapping[str, Any], known: tuple[str, ...]) -> None:
    for key in values:
        if key not in known:
            near = difflib.get_close_matches(str(key), known, n=1)
            guess = f"did you mean {near[0]}? " if near else ""
            read.add([f"{where}.{key}: unknown; {guess}known: {', '.join(known)}"])
