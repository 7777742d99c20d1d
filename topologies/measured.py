"""Regions of a cloud with measured figures, and a link between every two of them."""

from __future__ import annotations

import dataclasses
import difflib
from typing import Annotated, Any, Unpack

from testbed.core.kinds import Choice
from testbed.core.parameters import Count, Rate
from testbed.core.spec.link_profile import LinkProfile
from testbed.core.spec.topology import Link, Topology, symmetric
from testbed.core.units import format_rate
from topologies.matrices import MATRICES, Matrix
from topologies.parameters import Cap, Impairments, Name, Names, Parameters, with_impairments
from topologies.parts import LAN_RATE, assemble, every_pair

CAP_BIT_S = 1e10
"""Rate of a link that was measured as faster, or not at all."""


def build(
    *,
    matrix: Annotated[str, Choice(MATRICES)],
    name: Name = "",
    workers: Count = 10,
    regions: Names = (),
    rate: Cap = "",
    lan_rate: Rate = LAN_RATE,
    **impairments: Unpack[Impairments],
) -> Topology:
    """Return a full mesh of the regions of a measured matrix.

    A link's capacity is the rate that many flows reached together, or, if nobody measured it, the one that its source
    says was assumed. The figure of a single flow is kept as `flow_rate_bit_s` and limits nothing. The dtfm topologies
    are the exception: DT-FM emulated links of the capacity that few flows had reached, and a run that is compared with
    theirs needs the same.

    Args:
        matrix: Name of a matrix in `topologies.matrices`.
        regions: Regions of the matrix, in filling order; empty: all.
        rate: Cap of WAN rates; empty: as measured. A matrix without rates needs it.
        lan_rate: Rate of a worker's access link.

    Raises:
        InputError: A parameter is wrong; every error at once.
    """
    read = Parameters()
    if matrix not in MATRICES:
        read.add([f"topo.matrix={matrix}: unknown; known: {', '.join(MATRICES)}"])
        read.raise_faults()
    figures = MATRICES[matrix]
    cap_bit_s = read.cap(rate)
    if not rate and any(pair.capacity_gbit_s is None for pair in figures.pairs.values()):
        read.add([f"topo.rate: must be given: {matrix} has round trips only"])
    places = _places(read, regions or figures.regions, figures)
    links = [_link(read, figures, a, b, cap_bit_s, impairments) for a, b in every_pair(places)]
    return assemble(read, name or matrix, read.placed(workers, places), links, lan_rate)


def _places(read: Parameters, regions: tuple[str, ...] | list[str], figures: Matrix) -> tuple[str, ...]:
    """Return the known ones among `regions`."""
    asked = read.regions(regions)
    for region in asked:
        if region not in figures.regions:
            near = difflib.get_close_matches(region, figures.regions, n=1)
            guess = f"did you mean {near[0]}? " if near else ""
            read.add([f"topo.regions: {region} is unknown here; {guess}known: {', '.join(figures.regions)}"])
    return tuple(dict.fromkeys(region for region in asked if region in figures.regions))


def _link(read: Parameters, figures: Matrix, a: str, b: str, cap_bit_s: float | None, impairments: Impairments) -> Link:
    pair = figures.pair(a, b)
    rate_bit_s, capacity = _capacity(figures, pair.capacity_gbit_s, cap_bit_s)
    rtt_s = pair.rtt_ms / 1e3
    what = "RTT and single flow" if pair.flow_gbit_s else "RTT"
    fields: dict[str, Any] = {
        "rate_bit_s": rate_bit_s,
        "rtt_s": rtt_s,
        "source": with_impairments(f"{what}: {figures.origin.text}. Capacity: {capacity}", impairments),
        **read.impairments(impairments, rate_bit_s, rtt_s),
    }
    link = symmetric(f"{a}-{b}", a, b, wan=True, **fields)
    read.add(link.forward.faults("topo, WAN links"))
    return dataclasses.replace(
        link, forward=_with_flow(link.forward, figures, a, b), backward=_with_flow(link.backward, figures, b, a)
    )


def _with_flow(profile: LinkProfile, figures: Matrix, source: str, target: str) -> LinkProfile:
    """Return the profile of one direction, with what a single flow had in it."""
    flow_gbit_s = figures.flow_gbit_s(source, target)
    return dataclasses.replace(profile, flow_rate_bit_s=flow_gbit_s * 1e9 if flow_gbit_s else None)


def _capacity(figures: Matrix, measured_gbit_s: float | None, cap_bit_s: float | None) -> tuple[float, str]:
    """Return (bits per second, words for it)."""
    if measured_gbit_s is None:
        return cap_bit_s or CAP_BIT_S, "assumed: given as topo.rate, nothing measured"
    measured_bit_s = measured_gbit_s * 1e9
    if cap_bit_s is not None and cap_bit_s < measured_bit_s:
        return (
            cap_bit_s,
            f"assumed: held at {format_rate(cap_bit_s)} as asked (topo.rate); uncapped: {figures.capacity}",
        )
    if measured_bit_s > CAP_BIT_S:
        return (
            CAP_BIT_S,
            f"held at {format_rate(CAP_BIT_S)}, the most a link of these may have; more was {figures.capacity}",
        )
    return measured_bit_s, figures.capacity
