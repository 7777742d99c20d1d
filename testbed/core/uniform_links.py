"""Networks whose WAN links are all alike: one rate and one round trip, which can be asked for anew."""

from __future__ import annotations

import dataclasses

from testbed.core.errors import InputError
from testbed.core.link_profile import LinkProfile
from testbed.core.topology import Link, Topology


def uniform_rtt_s(topology: Topology) -> float:
    """The round trip of every WAN link.

    Raises:
        InputError: there is no WAN link, or they are not all alike.
    """
    found = {(p.rate_bit_s, p.delay_s) for link in topology.wan_links for _, _, p in link.directions()}
    if not found:
        raise InputError(
            f"topo={topology.name}: it has no WAN link; use one of two_regions, star, ring, full_mesh, wan*"
        )
    if len(found) > 1:
        raise InputError(
            f"topo={topology.name}: its WAN links differ, so that no one rate and round trip tells of them; use one"
            " whose links are alike, such as two_regions, star, ring, full_mesh or wan*"
        )
    return topology.wan_links[0].rtt_s


def with_wan(topology: Topology, rate_bit_s: float, rtt_s: float) -> Topology:
    """The same network with this rate, each way, and this round trip of every WAN link.

    Raises:
        InputError: a number is out of range, or jitter is larger than what is left of the delay.
    """

    def changed(profile: LinkProfile) -> LinkProfile:
        return dataclasses.replace(profile, rate_bit_s=rate_bit_s, delay_s=rtt_s / 2)

    def of(link: Link) -> Link:
        if not link.wan:
            return link
        return dataclasses.replace(link, forward=changed(link.forward), backward=changed(link.backward))

    return dataclasses.replace(topology, links=tuple(map(of, topology.links)))
