"""A topology as a picture: regions on a circle, routers inside it, WAN links with rate and round trip."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from xml.etree import ElementTree

from testbed.core.spec.topology import Link, Topology
from testbed.core.units import format_rate, format_time

Point = tuple[float, float]

_WIDTH = 980.0
_HEAD, _LINE = 84.0, 15.0
"""Height of the title with its subtitle, and of a line of the sources."""
_FONT = "font-family:Helvetica,Arial,'DejaVu Sans',sans-serif"
_INK, _FAINT, _NEAR, _FAR = "#1f2933", "#5b6770", (22, 78, 140), (150, 185, 215)
_MAX_SOURCES = 4
_ALONG = (0.5, 0.42, 0.58, 0.34, 0.66, 0.27, 0.73, 0.2, 0.8)
"""Where on its link a label may stand, as shares of its length, the best first."""


@dataclass(frozen=True)
class _Box:
    """An upright rectangle around a point."""

    x: float
    y: float
    width: float
    height: float

    def overlap(self, other: _Box) -> float:
        """Common area."""
        across = (self.width + other.width) / 2 - abs(self.x - other.x)
        along = (self.height + other.height) / 2 - abs(self.y - other.y)
        return max(0.0, across) * max(0.0, along)


def svg(topology: Topology) -> str:
    """Return the whole file, as text. The line of a WAN link has its name as `data-link`."""
    sources = [line for source in most_sources(topology.wan_links) for line in textwrap.wrap(f"Source: {source}", 140)]
    places, area = _places(topology)
    height = _HEAD + area + 24 + _LINE * len(sources) + 12
    root = ElementTree.Element(
        "svg",
        xmlns="http://www.w3.org/2000/svg",
        viewBox=f"0 0 {_WIDTH:g} {height:g}",
        width=f"{_WIDTH:g}",
        height=f"{height:g}",
    )
    ElementTree.SubElement(root, "title").text = f"Topology {topology.name}"
    ElementTree.SubElement(root, "rect", width="100%", height="100%", fill="#ffffff")
    _text(root, 28, 38, topology.name, size=22, weight="bold")
    _text(root, 28, 62, _subtitle(topology), size=13, fill=_FAINT)
    boxes = {region: _region_box(topology, region, places[region]) for region in topology.regions}
    for link in topology.wan_links:
        _draw_link(root, link, places, _nearness(topology, link))
    for link, box in _labels(topology, places, boxes).items():
        _draw_label(root, box, _words(topology, link))
    for region, box in boxes.items():
        _draw_region(root, topology, region, box)
    for index, line in enumerate(sources):
        _text(root, 28, _HEAD + area + 24 + _LINE * index, line, size=11, fill=_FAINT)
    ElementTree.indent(root)
    return ElementTree.tostring(root, encoding="unicode") + "\n"


def _subtitle(topology: Topology) -> str:
    wan = topology.wan_links
    parts = [
        f"{len(topology.regions)} region{'s' * (len(topology.regions) > 1)}",
        f"{len(topology.nodes)} workers",
        f"{len(wan)} WAN link{'s' * (len(wan) != 1)}",
    ]
    if wan:
        parts.append(spread((p.rate_bit_s for link in wan for _, _, p in link.directions()), format_rate) + " each way")
        parts.append("RTT " + spread((link.rtt_s for link in wan), _time))
    return ", ".join(parts)


def _places(topology: Topology) -> tuple[dict[str, Point], float]:
    """Where each region stands, and how high the picture of them is."""
    inner = _inner(topology)
    outer = [region for region in topology.regions if region not in inner]
    count = max(len(outer), 1)
    if len(topology.regions) <= 2:
        radius, area, start = _WIDTH / 4, 200.0, math.pi
    else:
        radius = min(370.0, 130.0 + 30 * count)
        area, start = 2 * radius + 90, -math.pi / 2
    middle = (_WIDTH / 2, _HEAD + area / 2)
    if len(topology.regions) == 1:
        return {topology.regions[0]: middle}, area
    places = {region: _on_circle(middle, radius, start + 2 * math.pi * i / count) for i, region in enumerate(outer)}
    for region in inner:
        places[region] = _inside(topology, region, places, middle, len(inner))
    return places, max(y for _, y in places.values()) - _HEAD + 45


def _inner(topology: Topology) -> list[str]:
    """Regions that others stand around: those without workers, or the one that every link ends at."""
    busy = {node.region for node in topology.nodes}
    routers = [region for region in topology.regions if region not in busy]
    hubs = [
        region
        for region in topology.regions
        if len(topology.wan_links) > 2 and all(region in (link.a, link.b) for link in topology.wan_links)
    ]
    found = routers or hubs
    return found if len(topology.regions) > 2 and len(found) < len(topology.regions) else []


def _inside(topology: Topology, region: str, places: Mapping[str, Point], middle: Point, count: int) -> Point:
    """Towards the regions around that it is linked with; in the middle if it is the only one inside."""
    if count == 1:
        return middle
    around = [
        places[other]
        for link in topology.wan_links
        for end, other in ((link.a, link.b), (link.b, link.a))
        if end == region and other in places
    ] or [middle]
    x, y = (sum(point[axis] for point in around) / len(around) for axis in (0, 1))
    return middle[0] + (x - middle[0]) * 0.5, middle[1] + (y - middle[1]) * 0.5


def _on_circle(middle: Point, radius: float, angle: float) -> Point:
    return middle[0] + radius * math.cos(angle), middle[1] + radius * math.sin(angle)


def _region_box(topology: Topology, region: str, place: Point) -> _Box:
    return _Box(*place, width=max(70.0, 8.0 * max(len(region), len(_workers(topology, region))) + 14), height=40)


def _workers(topology: Topology, region: str) -> str:
    count = sum(node.region == region for node in topology.nodes)
    return f"{count} worker{'s' * (count > 1)}" if count else "router"


def _labels(topology: Topology, places: Mapping[str, Point], regions: Mapping[str, _Box]) -> dict[Link, _Box]:
    """A place for the label of each link, on it, hiding as little as can be; short links have the least choice."""
    chosen: dict[Link, _Box] = {}
    links = sorted(topology.wan_links, key=lambda link: math.dist(places[link.a], places[link.b]))
    for link in links:
        (ax, ay), (bx, by) = places[link.a], places[link.b]
        words = _words(topology, link)
        size = {"width": 5.9 * max(map(len, words)) + 8, "height": 13.0 * len(words) + 4}
        options = [_Box(ax + (bx - ax) * share, ay + (by - ay) * share, **size) for share in _ALONG]
        hidden = [_hidden(option, [*regions.values(), *chosen.values()]) for option in options]
        chosen[link] = options[hidden.index(min(hidden))]
    return chosen


def _hidden(box: _Box, others: Iterable[_Box]) -> float:
    return sum(box.overlap(other) for other in others)


def _words(topology: Topology, link: Link) -> Sequence[str]:
    """Lines of a link's label; a rate that all links share stands in the subtitle."""
    rates = {profile.rate_bit_s for one in topology.wan_links for _, _, profile in one.directions()}
    if len(rates) == 1 and len(topology.wan_links) > 1:
        said = []
    elif link.forward.rate_bit_s == link.backward.rate_bit_s:
        said = [format_rate(link.forward.rate_bit_s)]
    else:
        said = [f"to {end}: {format_rate(profile.rate_bit_s)}" for _, end, profile in link.directions()]
    losses = sorted({profile.loss_ratio for _, _, profile in link.directions()} - {0.0})
    return [*said, _time(link.rtt_s), *(f"loss {loss:.3g}".rstrip() for loss in losses)]


def _nearness(topology: Topology, link: Link) -> float:
    """1 for the shortest round trip, 0 for the longest."""
    rtts = [one.rtt_s for one in topology.wan_links]
    return (max(rtts) - link.rtt_s) / ((max(rtts) - min(rtts)) or 1.0) if min(rtts) < max(rtts) else 1.0


def _draw_link(root: ElementTree.Element, link: Link, places: Mapping[str, Point], near: float) -> None:
    colour = "#" + "".join(f"{round(far + (n - far) * near):02x}" for n, far in zip(_NEAR, _FAR, strict=True))
    (ax, ay), (bx, by) = places[link.a], places[link.b]
    line = {"x1": ax, "y1": ay, "x2": bx, "y2": by}
    attributes = {key: f"{value:.1f}" for key, value in line.items()}
    more = {"stroke": colour, "stroke-width": f"{1.2 + near:.1f}", "data-link": link.name}
    ElementTree.SubElement(root, "line", attributes | more)


def _draw_label(root: ElementTree.Element, box: _Box, words: Sequence[str]) -> None:
    _rectangle(root, box, fill="#ffffff", **{"fill-opacity": "0.88"})
    for index, word in enumerate(words):
        _text(root, box.x, box.y - box.height / 2 + 12.5 + 13 * index, word, size=10.5, anchor="middle")


def _draw_region(root: ElementTree.Element, topology: Topology, region: str, box: _Box) -> None:
    workers = _workers(topology, region)
    fill = "#f3f4f6" if workers == "router" else "#e3effb"
    _rectangle(root, box, fill=fill, stroke="#3b5b7a", rx="7")
    _text(root, box.x, box.y - 3, region, size=13, weight="bold", anchor="middle")
    _text(root, box.x, box.y + 13, workers, size=11, fill=_FAINT, anchor="middle")


def _rectangle(root: ElementTree.Element, box: _Box, **attributes: str) -> None:
    corner = {"x": box.x - box.width / 2, "y": box.y - box.height / 2, "width": box.width, "height": box.height}
    ElementTree.SubElement(root, "rect", {**{key: f"{value:.1f}" for key, value in corner.items()}, **attributes})


def _text(
    root: ElementTree.Element,
    x: float,
    y: float,
    words: str,
    *,
    size: float,
    fill: str = _INK,
    weight: str = "normal",
    anchor: str = "start",
) -> None:
    style = {"font-size": f"{size:g}", "font-weight": weight, "text-anchor": anchor, "fill": fill, "style": _FONT}
    ElementTree.SubElement(root, "text", {"x": f"{x:.1f}", "y": f"{y:.1f}", **style}).text = words


def _time(time_s: float) -> str:
    return format_time(time_s) if time_s else "0 s"


def most_sources(links: Sequence[Link]) -> list[str]:
    """Return where the numbers come from, each once, and how many are left out."""
    found = list(dict.fromkeys(profile.source for link in links for _, _, profile in link.directions()))
    left = [f"and {len(found) - _MAX_SOURCES} more, of single links"] if len(found) > _MAX_SOURCES else []
    return [*found[:_MAX_SOURCES], *left]


def spread(values: Iterable[float], spoken: Callable[[float], str]) -> str:
    """Return the least and the most, or the one there is."""
    found = sorted(set(values))
    if not found:
        return "-"
    least, most = spoken(found[0]), spoken(found[-1])
    return least if least == most else f"{least} to {most}"
