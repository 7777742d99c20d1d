"""Bytes and rates S times smaller together: the same times for less work of the machine.

Valid where time is bytes over rate, plus delays. What does not shrink with S bounds it from above (`scaling_faults`):

    packets     keep their size, so one takes S times as long to send, and a queue holds S times fewer of them
    headers     of packets stay the same share of all bytes; framing of messages counts S times as much
    TCP         starts with ten segments: a tenth of the way through slow start at S = 1, past its end at a large S
    losses      come by the packet: S times fewer in a step, each as costly as before; lossy links are refused
    bursts      of access links after a pause are 130 kB at least, for S times as much
    CPU time    of strategies whose codecs take it as it comes falls, though not by S; they are refused
    PowerSGD    sends r (n + m) elements of n m, which do not shrink with n m: only payloads proportional to their
                tensor scale (none, fp16, int8, topk; sz3 nearly)

Buckets are to be made S times smaller too (`scaled_size_bytes`), or fewer of them overlap with backward.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator

from testbed.core.spec.link_profile import ETHERNET_BYTES, MIN_BURST_BYTES, MIN_RATE_BIT_S, TCP_IP_BYTES, LinkProfile
from testbed.core.spec.topology import Link, Topology
from testbed.core.units import format_size, format_time

_MAX_PACKET_SHARE = 0.02
"""Of the longest round trip that one packet may take to be sent."""


def scaled_topology(topology: Topology, scale: float) -> Topology:
    """The same network with rates and queues divided by `scale`; delays, jitter and losses stay."""
    links = tuple(_scaled_link(link, scale) for link in topology.links)
    return topology if scale == 1 else dataclasses.replace(topology, links=links)


def shared_topology(topology: Topology, connections: int) -> Topology:
    """Return the network as one of so many TCP connections has it: an equal share of each rate, and its own cap."""
    if connections == 1:
        return topology

    def of_one(whole: LinkProfile) -> LinkProfile:
        return dataclasses.replace(_scaled_profile(whole, connections), flow_cap_bit_s=whole.flow_cap_bit_s)

    links = (
        dataclasses.replace(link, forward=of_one(link.forward), backward=of_one(link.backward))
        for link in topology.links
    )
    return dataclasses.replace(topology, links=tuple(links))


def scaled_size_bytes(size_bytes: int, scale: float) -> int:
    return max(1, math.ceil(size_bytes / scale))


def _scaled_link(link: Link, scale: float) -> Link:
    forward, backward = _scaled_profile(link.forward, scale), _scaled_profile(link.backward, scale)
    return dataclasses.replace(link, forward=forward, backward=backward)


def _scaled_profile(profile: LinkProfile, scale: float) -> LinkProfile:
    flow, cap = profile.flow_rate_bit_s, profile.flow_cap_bit_s
    return dataclasses.replace(
        profile,
        rate_bit_s=profile.rate_bit_s / scale,
        flow_cap_bit_s=None if cap is None else cap / scale,
        limit_bytes=math.ceil(profile.limit_bytes / scale),  # 0 stays 0: one bandwidth-delay product
        burst_bytes=profile.burst_bytes and max(MIN_BURST_BYTES, math.ceil(profile.burst_bytes / scale)),
        flow_rate_bit_s=None if flow is None else flow / scale,
    )


def scaling_faults(topology: Topology, scale: float, *, bucket_bytes: int) -> Iterator[str]:
    """Why results at `scale` would not be those of the full size, one line each.

    Args:
        topology: at full size.
        bucket_bytes: at full size, of what is sent at once.
    """
    if scale == 1:
        return
    for link in topology.links:
        for source, target, profile in link.directions():
            if profile.loss_ratio or profile.reorder_ratio or profile.duplicate_ratio:
                yield f"scale={scale:g}: link {link.name} from {source} to {target} treats packets by chance, which" + (
                    " are fewer and not smaller; use scale=1, or a link without loss, reordering and duplicates"
                )
    yield from _rate_faults(topology, scale)
    workers = len(topology.nodes)
    segment_bytes = bucket_bytes / (scale * workers)
    if segment_bytes < (least := topology.mtu_bytes - TCP_IP_BYTES):
        largest = bucket_bytes / (workers * least)
        yield (
            f"scale={scale:g}: each of {workers} workers would send {format_size(segment_bytes)} of a bucket of"
            f" {format_size(bucket_bytes)} at once, less than one packet carries; {_at_most(largest)}"
        )


def _rate_faults(topology: Topology, scale: float) -> Iterator[str]:
    packet_bytes = topology.mtu_bytes + ETHERNET_BYTES
    rate_bit_s, name = min(
        ((p.rate_bit_s, link.name) for link in topology.links for _, _, p in link.directions()), default=(math.inf, "")
    )
    if rate_bit_s / scale < MIN_RATE_BIT_S:
        largest = rate_bit_s / MIN_RATE_BIT_S
        yield (
            f"scale={scale:g}: link {name} would carry {rate_bit_s / scale:.3g} bit/s, below {MIN_RATE_BIT_S:g};"
            f" {_at_most(largest)}"
        )
        return
    packet_s, most_s = 8 * packet_bytes * scale / rate_bit_s, _MAX_PACKET_SHARE * topology.farthest_rtt_s
    if topology.farthest_rtt_s and packet_s > most_s:
        largest = scale * most_s / packet_s
        yield (
            f"scale={scale:g}: one packet would take {format_time(packet_s)} on link {name}, above"
            f" {_MAX_PACKET_SHARE:.0%} of the longest round trip, {format_time(topology.farthest_rtt_s)};"
            f" {_at_most(largest)}"
        )


def _at_most(scale: float) -> str:
    return f"use scale={math.floor(scale)} at most" if scale >= 2 else "use scale=1"
