"""What plain Mininet is told of our topologies; nothing is built. tests/emulation/test_mininet_topo.py runs `mn`."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path
from typing import Any

import pytest
from mininet.link import TCIntf

from testbed.core.errors import InputError
from testbed.core.spec.link_profile import LinkProfile
from testbed.core.spec.topology import Link, Node, Topology, symmetric
from testbed.orchestrator.config import config
from testbed.orchestrator.export import mininet_topology
from testbed.orchestrator.export.mininet_topology import (
    CheckedInterface,
    CheckedLink,
    MininetTopo,
    RegionRouter,
    mininet_name,
)

SOURCE = "assumed: a test"


def wan(a: str, b: str, rtt_s: float = 0.067, **profile: Any) -> Link:
    return symmetric(f"{a}-{b}", a, b, wan=True, rtt_s=rtt_s, **{"rate_bit_s": 100e6, "source": SOURCE, **profile})


def two_regions(link: Link) -> Topology:
    nodes = tuple(Node(name=f"{region}-0", region=region) for region in (link.a, link.b))
    access = tuple(
        symmetric(f"{n.name}-{n.region}", n.name, n.region, wan=False, rtt_s=0, rate_bit_s=1e9, source=SOURCE)
        for n in nodes
    )
    return Topology(name="two", regions=(link.a, link.b), nodes=nodes, links=(link, *access))


def options(topo: MininetTopo, source: str, target: str) -> dict[str, Any]:
    """Of the end at `source`."""
    info = topo.linkInfo(mininet_name(source), mininet_name(target))
    return dict(info["params1" if info["node1"] == mininet_name(source) else "params2"])


def delay_s(topo: MininetTopo, source: str, target: str) -> float:
    match = re.fullmatch(r"([0-9.]+)ms", options(topo, source, target).get("delay", "0ms"))
    assert match
    return float(match[1]) / 1e3


def mesh() -> MininetTopo:
    return MininetTopo(config.compose(["topo=full_mesh", "topo.lan_rate=1 Gbit/s", "workers=5"]).topology)


def test_regions_are_routers_and_nodes_hosts() -> None:
    topo = mesh()
    assert topo.switches() == ["east", "north", "south", "west"]
    assert topo.hosts() == ["east_0", "north_0", "north_1", "south_0", "west_0"]
    assert len(topo.links()) == 6 + 5
    assert {topo.nodeInfo(region)["cls"] for region in topo.switches()} == {RegionRouter}
    assert len({topo.nodeInfo(region)["dpid"] for region in topo.switches()}) == 4
    assert {info["cls"] for *_, info in topo.links(withInfo=True)} == {CheckedLink}


def test_the_round_trip_over_both_ends_is_the_one_asked() -> None:
    topo = MininetTopo(two_regions(wan("oregon", "virginia", rtt_s=0.067)))
    ends = [delay_s(topo, *ends) for ends in (("oregon", "virginia"), ("virginia", "oregon"))]
    assert ends == pytest.approx([0.0335, 0.0335]) and sum(ends) == pytest.approx(0.067)
    assert delay_s(topo, "oregon_0", "oregon") == delay_s(topo, "oregon", "oregon_0") == 0


def test_each_direction_is_shaped_where_it_leaves() -> None:
    there = LinkProfile(rate_bit_s=50e6, delay_s=0.010, loss_ratio=0.001, source=SOURCE)
    back = LinkProfile(rate_bit_s=200e6, delay_s=0.030, limit_bytes=1_514_000, source=SOURCE)
    topo = MininetTopo(two_regions(dataclasses.replace(wan("a", "b"), forward=there, backward=back)))
    found = options(topo, "a", "b")
    assert (found["bw"], found["loss"]) == (50, pytest.approx(0.1))
    # one bandwidth-delay product of queue (250 kB), and 62.5 kB under way
    assert found["max_queue_size"] == 207
    found = options(topo, "b", "a")
    assert found["bw"] == 200 and "loss" not in found and delay_s(topo, "b", "a") == pytest.approx(0.030)
    assert found["max_queue_size"] == 1000 + 496, "the queue asked, and 750 kB under way"


def test_mininet_makes_of_it_the_tc_commands_that_are_meant() -> None:
    topo = MininetTopo(two_regions(wan("a", "b", rtt_s=0.067, loss_ratio=0.005)))
    found = options(topo, "a", "b")
    rate, parent = TCIntf.bwCmds(CheckedInterface.__new__(CheckedInterface), bw=found["bw"])
    assert "htb rate 100.000000Mbit" in rate[1]
    shaping = {key: found[key] for key in ("delay", "loss", "max_queue_size")}
    (delay,), _ = TCIntf.delayCmds(parent, **shaping)
    assert "netem delay 33.500000ms loss 0.50000 limit" in delay


def test_a_link_without_delay_and_loss_needs_no_netem() -> None:
    found = options(mesh(), "north_0", "north")
    assert found["bw"] == 1000 and not found.keys() & {"delay", "loss", "max_queue_size", "jitter"}


def test_every_path_has_a_route_and_leads_to_the_right_region() -> None:
    for name in ("full_mesh", "ring", "star", "hierarchical"):
        rates = [f"topo.{key}=1 Gbit/s" for key in ("rate", "lan_rate")]
        topology = config.compose([f"topo={name}", *rates, "workers=6"]).topology
        topo = MininetTopo(topology)
        owner = {  # which region has an address
            options(topo, region, other)["ip"].partition("/")[0]: region
            for link in topology.wan_links
            for region, other in ((link.a, link.b), (link.b, link.a))
        }
        networks = {f"10.{64 + index}.0.0/16": region for index, region in enumerate(topology.regions)}
        for start in topology.regions:
            assert set(topo.nodeInfo(mininet_name(start))["routes"]) == networks.keys() - {
                network for network, region in networks.items() if region == start
            }
            for network, region in networks.items():
                here, hops = start, 0
                while here != region:
                    here, hops = owner[topo.nodeInfo(mininet_name(here))["routes"][network]], hops + 1
                    assert hops < len(topology.regions), f"{name}: from {start} to {region} in circles"


def test_interface_names_fit_the_kernel_and_are_unique() -> None:
    regions = ("a-region-with-a-name-of-some-length", "another-region-with-a-long-name")
    topo = MininetTopo(two_regions(wan(*regions)))
    names = [info[key] for *_, info in topo.links(withInfo=True) for key in ("intfName1", "intfName2")]
    assert len(set(names)) == 6 and all(len(name) <= 15 for name in names)


@pytest.mark.parametrize(
    ("profile", "said"),
    [
        ({"rate_bit_s": 1.001e9}, "1.001 Gbit/s: Mininet's TCLink limits no rate above 1 Gbit/s"),
        ({"jitter_s": 1e-3}, "jitter: "),
        ({"jitter_s": 1e-3, "jitter_distribution": "normal"}, "jitter: "),
        ({"loss_ratio": 0.01, "loss_burst_packets": 4}, "losses in bursts: "),
        ({"loss_ratio": 1e-8}, "a loss of 1e-08: "),
        ({"duplicate_ratio": 0.01}, "duplicates: "),
        ({"reorder_ratio": 0.01}, "reordering: "),
    ],
)
def test_what_tclink_would_leave_out_is_refused_by_name(profile: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError) as caught:
        MininetTopo(two_regions(wan("a", "b", **profile)))
    (fault,) = caught.value.faults
    assert f"topology two: {said}" in fault and fault.endswith("; links: a-b")


def test_all_that_is_refused_is_said_at_once() -> None:
    link = wan("a", "b", rate_bit_s=2e9, jitter_s=1e-3, duplicate_ratio=0.01)
    with pytest.raises(InputError) as caught:
        MininetTopo(two_regions(link))
    assert len(caught.value.faults) == 3


@pytest.mark.tier("all")
def test_every_named_topology_is_offered_and_carried_or_refused_for_its_own_profile() -> None:
    assert set(mininet_topology.topos) == {*config.names("topo"), "file"}
    for name in config.names("topo"):
        rates = {} if name in ("lan", "hierarchical") else {"rate": "1 Gbit/s"}
        if name == "lossy":
            rates["loss_burst_packets"] = "0"
        topo = mininet_topology.topos[name](lan_rate="1 Gbit/s", **rates)
        assert len(topo.hosts()) >= 2


def test_a_file_of_one_s_own_is_taken_by_its_path(tmp_path: Path) -> None:
    path = tmp_path / "mynet.yaml"
    path.write_text(
        "regions: {a: 2, b: 1}\nlan_rate: 1 Gbit/s\nlinks: [{a: a, b: b, rate: 10 Mbit/s, rtt: 30 ms, source: me}]\n"
    )
    topo = mininet_topology.topos["file"](path=str(path))
    assert topo.hosts() == ["a_0", "a_1", "b_0"] and delay_s(topo, "a", "b") == pytest.approx(0.015)


@pytest.mark.parametrize(
    ("name", "positional", "given", "said"),
    [
        ("us3", (), {}, "Mininet's TCLink limits no rate above 1 Gbit/s"),
        ("lan", (), {"lan_rat": "1 Gbit/s"}, "did you mean lan_rate?"),
        ("lan", (6,), {}, "--topo lan,6: say what it is"),
        ("file", (), {}, "--topo file: say which"),
        ("file", (), {"path": "gone.yaml"}, "topo=gone.yaml: cannot be read"),
    ],
)
def test_what_cannot_be_ends_mn_without_its_clean_up(
    name: str, positional: tuple[Any, ...], given: dict[str, Any], said: str
) -> None:
    with pytest.raises(SystemExit, match=re.escape(said)):  # `mn` catches every Exception, and then kills by name
        mininet_topology.topos[name](*positional, **given)


class Refusing(CheckedInterface):
    """Stands on a tc that answers `answer`."""

    name, answer = "r0-eth0", ""
    node = Node(name="a", region="a")

    def __init__(self) -> None:
        pass

    def cmd(self, *_: object) -> str:
        return ""

    def tc(self, cmd: str, tc: str = "tc") -> str:
        return "noqueue" if " show " in cmd else self.answer


def test_what_tc_refuses_ends_the_program(monkeypatch: pytest.MonkeyPatch) -> None:
    interface = Refusing()
    monkeypatch.setattr(Refusing, "answer", "Warning: sch_htb: quantum of class 50001 is big. Consider r2q change.\n")
    interface.config(bw=100, delay="10ms", up=None)
    monkeypatch.setattr(Refusing, "answer", "Error: Specified qdisc kind is unknown.\n")
    with pytest.raises(SystemExit, match=r"r0-eth0 of a: tc refuses: .*unknown.*\n.*sch_netem"):
        interface.config(bw=100, delay="10ms", up=None)
