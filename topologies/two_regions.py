"""Two regions joined by one WAN link."""

from __future__ import annotations

from testbed.core.errors import InputError
from testbed.core.placement import workers_per_region
from testbed.core.topology import Link, Node, Topology, symmetric
from testbed.core.units import parse_rate_bit_s, parse_ratio, parse_time_s

_DTFM = (
    "DT-FM (arXiv 2206.01288), scheduler/generate_sim_com_matrices.py: AWS Oregon-Virginia, RTT 67 ms, single"
    " measurement; Skyplane's latency.csv of 2022 has 68.3 ms for us-west-2 - us-east-1"
)


def build(
    *,
    name: str = "two_regions",
    workers: int = 4,
    regions: tuple[str, ...] | list[str] = ("oregon", "virginia"),
    rate: str = "1 Gbit/s",
    rtt: str = "67 ms",
    loss: str = "0",
    lan_rate: str = "2.5 Gbit/s",
    source: str = _DTFM,
) -> Topology:
    """Two regions, workers spread over them in blocks, one WAN link, an access link for each worker.

    Args:
        workers: in all, at least one a region.
        rate: of the WAN link, each way, as text with a unit.
        rtt: of the WAN link, both ways together, as text with a unit.
        loss: of the WAN link, each way; a ratio or a percentage.
        lan_rate: of every worker's access link, each way.

    Raises:
        InputError: with every fault at once.

    >>> build(workers=4).wan_links[0].forward.delay_s
    0.0335
    """
    faults: list[str] = []
    values: dict[str, float] = {}
    for key, text, parse in (
        ("topo.rate", rate, parse_rate_bit_s),
        ("topo.rtt", rtt, parse_time_s),
        ("topo.loss", loss, parse_ratio),
        ("topo.lan_rate", lan_rate, parse_rate_bit_s),
    ):
        try:
            values[key] = parse(text)
        except ValueError as error:
            faults.append(f"{key}: {error}")
    if len(regions) != 2 or len(set(regions)) != 2:
        faults.append(f"topo.regions={list(regions)}: this topology has exactly two different regions")
    try:
        blocks = workers_per_region(workers, 2)
    except ValueError as error:
        faults.append(str(error))
    if faults:
        raise InputError(*faults)
    nodes = tuple(
        Node(name=f"{region}-{index}", region=region)
        for region, count in zip(regions, blocks, strict=True)
        for index in range(count)
    )
    wan = symmetric(
        f"{regions[0]}-{regions[1]}",
        regions[0],
        regions[1],
        wan=True,
        rate_bit_s=values["topo.rate"],
        rtt_s=values["topo.rtt"],
        loss_ratio=values["topo.loss"],
        source=source,
    )
    return Topology(
        name=name, regions=tuple(regions), nodes=nodes, links=(wan, *access_links(nodes, values["topo.lan_rate"]))
    )


def access_links(nodes: tuple[Node, ...], rate_bit_s: float) -> tuple[Link, ...]:
    """One link from each node to its region; its delay is what the kernel's own path takes."""
    return tuple(
        symmetric(
            f"{node.name}-{node.region}",
            node.name,
            node.region,
            wan=False,
            rate_bit_s=rate_bit_s,
            rtt_s=0.0,
            source="assumed: a 2.5 Gbit/s network card, which two cores can carry; no delay added",
        )
        for node in nodes
    )
