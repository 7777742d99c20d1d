"""A topology as a lab of containerlab: the keys that its documentation and its published schema name, and a network in
which every node reaches every other with the asked delay and rate, followed command by command."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from ipaddress import IPv4Address, IPv4Network
from pathlib import Path
from typing import Any

import pytest
import yaml

from testbed.core.errors import InputError
from testbed.core.spec.topology import Topology, symmetric
from testbed.orchestrator.cli.main import main
from testbed.orchestrator.config.config import compose, names
from testbed.orchestrator.export.containerlab_topology import lab, netem, tbf, write
from topologies import described

IMAGE = "example/debian:12"
LINK: dict[str, Any] = {"wan": True, "rtt_s": 0.01, "rate_bit_s": 1e8, "source": "assumed: a test"}
OF_NODE = {"kind", "image", "network-mode", "cmd", "exec"}
"""Of the many that a node may have."""


def schema_faults(content: Any) -> list[str]:
    """What the schema that containerlab publishes asks of the keys that we write, as read there."""
    found = []
    if set(content) != {"name", "topology"} or set(content["topology"]) - {"nodes", "links"}:
        found.append("other keys than name and topology, nodes and links")
    if not isinstance(content["name"], str):
        found.append("name is no text")
    for name, node in content["topology"]["nodes"].items():
        if node.keys() - OF_NODE or node["kind"] != "linux" or not isinstance(node["image"], str):
            found.append(f"{name}: {sorted(node)}")
        if not isinstance(node["cmd"], str) or not re.match("^(host|none|container:)", node["network-mode"]):
            found.append(f"{name}: cmd or network-mode")
        if not node["exec"] or not all(isinstance(command, str) for command in node["exec"]):
            found.append(f"{name}: exec")
    links = content["topology"]["links"]
    ends = [end for link in links for end in link["endpoints"]]
    if not links or any(set(link) != {"endpoints"} or len(link["endpoints"]) != 2 for link in links):
        found.append("links: not two endpoints each")
    if len(set(ends)) != len(ends) or not all(re.fullmatch(r"\S+:\S+", end) for end in ends):
        found.append("links: an endpoint that is used twice, or not NODE:INTERFACE")
    return found + [end for end in ends if end.split(":")[0] not in content["topology"]["nodes"]]


@dataclass
class Box:
    """What the commands of a node make of it."""

    addresses: dict[str, IPv4Address] = field(default_factory=dict)
    routes: dict[IPv4Network, IPv4Address] = field(default_factory=dict)
    rates_bit_s: dict[str, int] = field(default_factory=dict)
    delays_s: dict[str, float] = field(default_factory=dict)
    forwards: bool = False
    unfiltered: set[str] = field(default_factory=set)

    def do(self, command: str) -> None:
        words = command.split()
        if words[:2] == ["ip", "address"]:
            self.addresses[words[5]] = IPv4Address(words[3].removesuffix("/31"))
        elif words[:2] == ["ip", "route"]:
            network = IPv4Network("0.0.0.0/0" if words[3] == "default" else words[3])
            assert network not in self.routes
            self.routes[network] = IPv4Address(words[5])
        elif words[:2] == ["tc", "qdisc"]:
            assert words[2:4] == ["add", "dev"] and words[4] in self.addresses, "shaped before it has an address"
            if words[6] == "tbf":
                self.rates_bit_s[words[4]] = int(words[8].removesuffix("bit"))
            else:
                self.delays_s[words[4]] = float(words[words.index("delay") + 1].removesuffix("us")) / 1e6
        elif words[:2] == ["sysctl", "-w"]:
            self.forwards |= words[2] == "net.ipv4.ip_forward=1"
            if strict := re.fullmatch(r"net\.ipv4\.conf\.(\w+)\.rp_filter=0", words[2]):
                self.unfiltered.add(strict[1])
        else:
            assert re.fullmatch(r"ip link set dev eth\d+ mtu 1500 up", command), command


class Network:
    def __init__(self, content: Any) -> None:
        self.boxes = {name: Box() for name in content["topology"]["nodes"]}
        for name, node in content["topology"]["nodes"].items():
            for command in node["exec"]:
                self.boxes[name].do(command)
        self.peer: dict[tuple[str, str], tuple[str, str]] = {}
        for link in content["topology"]["links"]:
            a, b = (tuple(end.split(":")) for end in link["endpoints"])
            self.peer |= {a: b, b: a}

    def way(self, start: str, goal: str) -> tuple[float, float]:
        """(delay, least rate) of the path that packets take."""
        (target,) = self.boxes[goal].addresses.values()
        here, delay_s, rate_bit_s, hops = start, 0.0, float("inf"), 0
        while target not in self.boxes[here].addresses.values():
            box, hops = self.boxes[here], hops + 1
            assert hops < 20, "packets circle"
            assert here == start or box.forwards
            assert not box.forwards or box.unfiltered == {"all", *box.addresses}, "ways back may be others"
            interface = self._leaves_on(box, target)
            delay_s += box.delays_s.get(interface, 0.0)
            rate_bit_s = min(rate_bit_s, box.rates_bit_s.get(interface, float("inf")))
            here = self.peer[here, interface][0]
        return delay_s, rate_bit_s

    def _leaves_on(self, box: Box, target: IPv4Address) -> str:
        near = [name for name, own in box.addresses.items() if int(own) ^ 1 == int(target)]
        if near:
            return near[0]
        fitting = [network for network in box.routes if target in network]
        via = box.routes[max(fitting, key=lambda network: network.prefixlen)]
        (interface,) = (name for name, own in box.addresses.items() if int(own) ^ 1 == int(via))
        return interface


@pytest.mark.parametrize("name", names("topo"))
def test_every_topology_is_a_lab_of_the_published_form(name: str) -> None:
    topology = compose([f"topo={name}"]).topology
    content = yaml.safe_load(yaml.safe_dump(lab(topology, IMAGE)))
    assert schema_faults(content) == []
    assert len(content["topology"]["links"]) == 2 * len(topology.wan_links) + len(topology.access_links)


@pytest.mark.parametrize("name", ["wan100m", "us3", "aws8", "ring", "hub_and_spoke", "hierarchical"])
def test_every_node_reaches_every_other_with_the_asked_delay_and_rate(name: str) -> None:
    topology = compose([f"topo={name}"]).topology
    network = Network(lab(topology, IMAGE))
    region = {node.name: node.region for node in topology.nodes}
    direct = {(a, b): p for link in reversed(topology.wan_links) for a, b, p in link.directions()}
    access = {end: p for link in topology.access_links for end, _, p in link.directions()}
    for a in region:
        for b in region.keys() - {a}:
            delay_s, rate_bit_s = network.way(a, b)
            if profile := direct.get((region[a], region[b])):
                assert delay_s == pytest.approx(profile.delay_s, abs=1e-8)
                assert rate_bit_s == pytest.approx(min(profile.rate_bit_s, access[a].rate_bit_s), rel=1e-6)
            elif region[a] == region[b]:
                assert (delay_s, rate_bit_s) == (0.0, pytest.approx(access[a].rate_bit_s))
            else:
                assert delay_s > 0


def described_link(**link: Any) -> Topology:
    return described.build(
        workers=2,
        regions=["a", "b"],
        links=[{"a": "a", "b": "b", "rate": "8 Mbit/s", "rtt": "10 ms", **link}],
        source="assumed: a test",
    )


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({}, "delay 5000.000us"),
        ({"loss": "1%"}, "delay 5000.000us loss 1.000000%"),
        ({"jitter": "2 ms"}, "delay 5000.000us 2000.000us rate 100000000000bit"),
        (
            {"jitter": "2 ms", "jitter_distribution": "normal"},
            "delay 5000.000us 2000.000us distribution normal rate 100000000000bit",
        ),
        ({"duplicate": "1%", "reorder": "2%"}, "delay 5000.000us duplicate 1.000000% reorder 2.000000% gap 1"),
    ],
)
def test_impairments_become_words_of_netem(asked: dict[str, str], words: str) -> None:
    (link,) = described_link(**asked).wan_links
    assert netem("eth2", link.forward) == f"tc qdisc add dev eth2 root netem limit 20000 {words}"


def test_losses_in_bursts_have_the_chain_of_the_profile() -> None:
    (link,) = described_link(loss="1%", loss_burst_packets=4).wan_links
    words = netem("eth2", link.forward).split()
    shares = [float(word.removesuffix("%")) / 100 for word in words[words.index("gemodel") + 1 :]]
    chain = link.forward.gilbert_elliott
    assert chain is not None
    asked = [chain.enter_bad_ratio, chain.leave_bad_ratio, chain.bad_loss_ratio, chain.good_loss_ratio]
    assert shares == pytest.approx(asked, abs=1e-8)


def test_bursts_and_queues_are_those_of_our_runs() -> None:
    (link,) = described_link().wan_links
    assert tbf("eth1", link.forward, link.rtt_s) == (
        "tc qdisc add dev eth1 root tbf rate 8000000bit burst 3200b limit 64000b"
    )


def test_directions_differ_where_they_were_asked_to() -> None:
    content = lab(described_link(backward={"rate": "2 Mbit/s", "delay": "30 ms"}), IMAGE)
    network = Network(content)
    there, back = network.way("a-0", "b-0"), network.way("b-0", "a-0")
    assert (there[1], back[1]) == (8e6, 2e6) and there[0] != back[0]


def test_all_that_cannot_be_is_told_at_once() -> None:
    with pytest.raises(InputError) as told:
        lab(Topology(name="odd", regions=("a b", "wan0"), nodes=(), links=(symmetric("x", "a b", "wan0", **LINK),)), "")
    assert [fault.split(":")[0] for fault in told.value.faults][:1] == ["--image ''"]
    assert any("'a b' is no name" in fault for fault in told.value.faults)
    assert any("'wan0' is the name of a WAN link's middle" in fault for fault in told.value.faults)


def test_the_command_writes_it_with_its_sources(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "us3.clab.yml"
    asked = ["topologies", "us3", "workers=6", "--containerlab", str(path)]
    assert main([*asked, "--image", IMAGE]) == 0
    text = path.read_text()
    assert text.startswith("# us3, of `longhaul topologies`") and "# source of its numbers: " in text
    assert len(re.findall(rf"image: {IMAGE}", text)) == 6 + 3 + 3
    assert main(asked) == 2 and main(["topologies", "--containerlab", str(path)]) == 2
    with pytest.raises(InputError, match="cannot be written"):
        write(tmp_path / "no" / "x.yml", compose(["topo=us3"]).topology, IMAGE)
    said = capsys.readouterr()
    assert f"containerlab deploy -t {path}" in said.out and "--image ''" in said.err


def test_a_region_that_containerlab_takes_for_the_machine_gets_another_name() -> None:
    content = lab(compose(["topo=host_link"]).topology, IMAGE)
    assert {"host-region", "host-0"} < set(content["topology"]["nodes"]) and "host" not in content["topology"]["nodes"]
    ends = [end.split(":")[0] for link in content["topology"]["links"] for end in link["endpoints"]]
    assert "host-region" in ends and "host" not in ends
