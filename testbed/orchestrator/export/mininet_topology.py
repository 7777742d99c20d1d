"""A topology as a `Topo` of plain Mininet: what its TCLink can carry of ours, and no word less.

Regions become routers, as in our own runs: in a mesh of learning switches a flooded frame would circle for ever, and a
spanning tree would take links out. Addresses and routes are those of our runs too.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from testbed.core.errors import InputError, raise_input_faults
from testbed.core.spec.link_profile import MTU_BYTES, LinkProfile
from testbed.core.spec.topology import Link, Topology
from testbed.core.units import format_rate
from testbed.orchestrator.config import config
from testbed.orchestrator.config.trust import trust
from testbed.orchestrator.emulation.links.addresses import AddressPlan, Pair
from testbed.orchestrator.emulation.links.mininet_classes import Link as MininetLink
from testbed.orchestrator.emulation.links.mininet_classes import Switch, TCIntf, Topo

MAX_RATE_BIT_S = TCIntf.bwParamMax * 1e6
"""Above, TCLink logs an error and limits nothing."""
MIN_LOSS_RATIO = 1e-7
"""TCLink writes percentages with five digits behind the point."""
_FRAME_BYTES = 1514
_BURST_BYTES = 15_000
"""What TCLink gives htb."""


class MininetTopo(Topo):  # type: ignore[misc]
    """`Mininet(topo=MininetTopo(topology))`.

    Raises:
        InputError: the topology has what TCLink cannot do; every fault at once.
    """

    def build(self, topology: Topology) -> None:
        raise_input_faults(carrying_faults(topology))
        plan = AddressPlan(topology)
        ends = {link.name: _ends(plan, link) for link in topology.links}
        for index, region in enumerate(topology.regions):
            routes = {
                str(plan.region_network[other]): str(ends[link.name].far if link.a == region else ends[link.name].near)
                for other, link in plan.next_links(region).items()
            }
            self.addSwitch(mininet_name(region), cls=RegionRouter, dpid=f"{index + 1:x}", routes=routes)
        for node in topology.nodes:
            pair = plan.access[node.name]
            self.addHost(mininet_name(node.name), ip=f"{pair.far}/31", defaultRoute=f"via {pair.near}")
        self._add_links(topology, ends)

    def _add_links(self, topology: Topology, ends: Mapping[str, Pair]) -> None:
        names = {name: f"r{index}" for index, name in enumerate(topology.regions)}
        names |= {node.name: f"h{index}" for index, node in enumerate(topology.nodes)}
        used = dict.fromkeys(names, 0)
        for link in topology.links:
            interfaces = []
            for end in (link.a, link.b):  # the kernel takes 15 characters, and names of ours are longer
                interfaces.append(f"{names[end]}-eth{used[end]}")
                used[end] += 1
            pair = ends[link.name]
            self.addLink(
                mininet_name(link.a),
                mininet_name(link.b),
                cls=CheckedLink,
                intfName1=interfaces[0],
                intfName2=interfaces[1],
                params1={"ip": f"{pair.near}/31", **tclink_options(link.forward, link.rtt_s)},
                params2={"ip": f"{pair.far}/31", **tclink_options(link.backward, link.rtt_s)},
            )


def mininet_name(name: str) -> str:
    """Mininet's prompt takes what stands before a hyphen for the whole name; ours have no underscores."""
    return name.replace("-", "_")


def _ends(plan: AddressPlan, link: Link) -> Pair:
    """`near` is the address at `a`, `far` the one at `b`."""
    if link.wan:
        return plan.wan[link.name].a_side
    pair = plan.access[link.a if link.a in plan.access else link.b]
    return Pair(pair.far, pair.near) if link.a in plan.access else pair


def tclink_options(profile: LinkProfile, rtt_s: float) -> dict[str, Any]:
    """Of the end that sends this direction: TCLink shapes what leaves an end, so each delays by one way alone."""
    options: dict[str, Any] = {"bw": profile.rate_bit_s / 1e6}
    if profile.delay_s:
        options["delay"] = f"{profile.delay_s * 1e3:.6f}ms"
    if profile.loss_ratio:
        options["loss"] = profile.loss_ratio * 100
    if profile.delay_s or profile.loss_ratio or profile.limit_bytes:
        # netem counts what is under way besides what waits, and drops above 1000 packets unless told otherwise
        queue_bytes = profile.limit_bytes or max(profile.rate_bit_s / 8 * rtt_s, 4 * _BURST_BYTES)
        under_way_bytes = profile.rate_bit_s / 8 * profile.delay_s
        options["max_queue_size"] = math.ceil((queue_bytes + under_way_bytes) / _FRAME_BYTES)
    return options


def carrying_faults(topology: Topology) -> Iterator[str]:
    """What plain Mininet would leave out without a word; a line for all links that have it."""
    links: dict[str, dict[str, None]] = {}
    for link in topology.links:
        for _, _, profile in link.directions():
            for fault in _profile_faults(profile):
                links.setdefault(fault, {})[link.name] = None
    for fault, names in links.items():
        yield f"topology {topology.name}: {fault}; links: {', '.join(names)}"


def _profile_faults(profile: LinkProfile) -> Iterator[str]:
    if profile.rate_bit_s > MAX_RATE_BIT_S:
        asked, most = format_rate(profile.rate_bit_s), format_rate(MAX_RATE_BIT_S)
        yield f"{asked}: Mininet's TCLink limits no rate above {most}; give it less (rate=, lan_rate=)"
    if 0 < profile.loss_ratio < MIN_LOSS_RATIO:
        yield f"a loss of {profile.loss_ratio:g}: Mininet's TCLink rounds what is below {MIN_LOSS_RATIO:g} to none"
    if profile.jitter_s:
        yield "jitter: with Mininet's TCLink packets would overtake each other, here they keep their order"
    for what, value in (
        ("losses in bursts", profile.gilbert_elliott),
        ("duplicates", profile.duplicate_ratio),
        ("reordering", profile.reorder_ratio),
        ("a burst of the queue", profile.burst_bytes),
        ("a cap of TCP flows", profile.flow_cap_bit_s),
        (f"an MTU of {profile.mtu_bytes}", profile.mtu_bytes != MTU_BYTES),
    ):
        if value:
            yield f"{what}: Mininet's TCLink has none"


class RegionRouter(Switch):  # type: ignore[misc]
    """A region as Mininet's switch, so that its tests ping and load the workers alone; it forwards by address."""

    def __init__(self, name: str, routes: Mapping[str, str], **params: Any) -> None:
        """Args:
        routes: the next address on the way to each network.
        """
        self.controlIntf = None
        self._routes = dict(routes)
        super().__init__(name, **{**params, "inNamespace": True})

    def start(self, _controllers: object) -> None:
        # paths there and back may differ, which the reverse path filter takes for forgery
        for key, value in (
            ("net.ipv4.ip_forward", 1),
            ("net.ipv4.conf.all.rp_filter", 0),
            ("net.ipv4.conf.all.send_redirects", 0),
            *((f"net.ipv4.conf.{interface}.rp_filter", 0) for interface in self.intfNames() if interface != "lo"),
        ):
            self._must("sysctl", "-w", f"{key}={value}")
        for network, via in self._routes.items():
            self._must("ip", "route", "add", network, "via", via)

    def _must(self, *command: str) -> None:
        said, errors, status = self.pexec(*command)
        if status:
            end(f"region {self.name}: {' '.join(command)}: {(errors or said).strip()}")


class CheckedInterface(TCIntf):  # type: ignore[misc]
    """Mininet logs what tc refuses, and goes on with a link that is not shaped; this one does not."""

    def config(self, **params: Any) -> Any:
        result = super().config(**params)
        said = [line for output in (result or {}).get("tcoutputs", ()) for line in output.splitlines() if line.strip()]
        refusals = [line.strip() for line in said if not line.startswith("Warning:")]
        if refusals:
            cure = ""
            if any(params.get(key) for key in ("delay", "loss", "max_queue_size")):
                cure = "\nMininet delays by sch_netem, which this kernel may lack; `longhaul run` can do without."
            end(f"{self.name} of {self.node.name}: tc refuses: {'; '.join(refusals)}{cure}")
        return result


class CheckedLink(MininetLink):  # type: ignore[misc]
    """Whatever `mn --link` says, since another class would ignore the options without a word."""

    def __init__(self, *nodes: Any, **params: Any) -> None:
        super().__init__(*nodes, **{**params, "intf": CheckedInterface})


def end(message: str) -> None:
    """End the program. Of an ordinary exception `mn` makes a clean-up that kills processes by name, machine-wide."""
    raise SystemExit(f"longhaul: {message}")


# Our named topologies for `mn --custom scripts/mininet_topos.py --topo NAME,key=value,...` (docs/mininet.md).

BY_PATH = "file"
"""The name under which a file of the user's own is given, as `--topo file,path=./mynet.yaml[,trust=./ship.py]`."""


def load(name: str, *positional: Any, **given: Any) -> MininetTopo:
    """The topology `name` with `workers` and its own parameters as given.

    Ends the program with every fault at once.
    """
    faults = [f"--topo {name},{value}: say what it is, as in workers={value}" for value in positional]
    if name == BY_PATH and "path" not in given:
        faults.append(f"--topo {BY_PATH}: say which, as in {BY_PATH},path=./mynet.yaml")
    trusted = [Path(str(given.pop("trust")))] if "trust" in given else []
    asked = [f"topo={Path(str(given.pop('path')))}" if name == BY_PATH and "path" in given else f"topo={name}"]
    asked += [f"{key if key == 'workers' else f'topo.{key}'}={value}" for key, value in given.items()]
    try:
        raise_input_faults(faults)
        trust(trusted)
        return MininetTopo(config.compose(asked).topology)
    except InputError as error:
        end("\nlonghaul: ".join(error.faults))
        raise


topos: dict[str, Callable[..., MininetTopo]] = {
    name: functools.partial(load, name) for name in (*config.names("topo"), BY_PATH)
}
"""As `mn` takes them."""
