"""The networks that are known by name: each builds, each number says where it is from."""

from __future__ import annotations

import re

import pytest

from testbed.core.errors import InputError
from testbed.core.spec.topology import Topology
from testbed.orchestrator.config.config import compose, names
from testbed.orchestrator.emulation.links.addresses import AddressPlan
from topologies import measured
from topologies.matrices import MATRICES
from topologies.measured import CAP_BIT_S

NAMED = ("aws8", "azure5", "dtfm-regional4", "dtfm-world8", "gcp4", "home", "ibm10", "lan", "lossy", "us3")
WAN = ("wan10m", "wan100m", "wan1g", "wan10g")


def built(name: str, *overrides: str) -> Topology:
    return compose([f"topo={name}", *overrides]).topology


def test_the_named_ones_are_there() -> None:
    assert {*NAMED, *WAN, "two_regions", "ring", "star", "full_mesh", "hub_and_spoke", "hierarchical"} <= {
        *names("topo")
    }


@pytest.mark.parametrize("name", names("topo"))
def test_each_builds_as_it_is_and_names_its_sources(name: str) -> None:
    topology = built(name)
    AddressPlan(topology)
    assert topology.name == name
    for link in topology.links:
        for _, _, profile in link.directions():
            dated = re.search(r"\b(19|20)\d\d\b", profile.source) and "licen" in profile.source
            assert dated or profile.source.startswith("assumed: "), profile.source


@pytest.mark.parametrize("matrix", MATRICES)
def test_each_matrix_has_a_figure_for_every_pair_with_its_origin(matrix: str) -> None:
    figures = MATRICES[matrix]
    topology = measured.build(matrix=matrix, rate="1 Gbit/s")
    count = len(figures.regions)
    assert topology.regions == figures.regions and len(topology.wan_links) == count * (count - 1) // 2
    for link in topology.wan_links:
        assert link.rtt_s == pytest.approx(figures.pair(link.a, link.b).rtt_ms / 1e3), "halved once"
        for part in (figures.origin.url, figures.origin.date, figures.origin.method, figures.origin.licence):
            assert part in link.forward.source


@pytest.mark.parametrize(
    ("name", "a", "b", "rtt_ms", "rate_gbit_s", "flow_gbit_s"),
    [
        ("us3", "virginia", "oregon", 67, 5, 0.79),
        ("us3", "virginia", "ohio", 11, 5, 1.12),
        ("dtfm-regional4", "virginia", "oregon", 67, 1.15, 1.15),
        ("dtfm-regional4", "california", "ohio", 52, 1.02, 1.02),
        ("dtfm-world8", "tokyo", "frankfurt", 223, 0.36, 0.36),
        ("dtfm-world8", "oregon", "virginia", 67, 0.79, 0.79),
        ("gcp4", "us-central1", "europe-west1", 103.1, 6.2, 0.21),
        ("gcp4", "europe-west1", "australia-southeast1", 272, 6.2, 0.069),
        ("aws8", "us-east-1", "us-west-2", 68.3, 4.35, None),
        ("aws8", "ap-southeast-1", "sa-east-1", 360.1, 1.92, None),
        ("azure5", "northeurope", "japaneast", 231, 4.8, None),
        ("ibm10", "dallas", "madrid", 120.5, 1, None),
        ("ibm10", "sydney", "sao-paulo", 328, 1, None),
    ],
)
def test_figures_are_those_of_the_source(
    name: str, a: str, b: str, rtt_ms: float, rate_gbit_s: float, flow_gbit_s: float | None
) -> None:
    (link,) = (link for link in built(name).wan_links if {link.a, link.b} == {a, b})
    assert link.forward == link.backward
    assert link.rtt_s * 1e3 == pytest.approx(rtt_ms) and link.forward.delay_s * 2e3 == pytest.approx(rtt_ms)
    assert link.forward.rate_bit_s == pytest.approx(rate_gbit_s * 1e9)
    assert link.forward.flow_rate_bit_s == (pytest.approx(flow_gbit_s * 1e9) if flow_gbit_s else None)


def test_a_single_flows_figure_is_a_capacity_in_dtfm_alone_and_there_it_is_said() -> None:
    for name in MATRICES:
        for link in built(name).wan_links:
            profile = link.forward
            if profile.flow_rate_bit_s is not None and name.startswith("dtfm"):
                assert "the same measurement taken as a link's capacity" in profile.source
            elif profile.flow_rate_bit_s is not None:
                assert profile.rate_bit_s > profile.flow_rate_bit_s


@pytest.mark.parametrize("matrix", MATRICES)
def test_a_rate_of_ones_own_caps_every_link_and_the_source_says_so(matrix: str) -> None:
    for link in built(matrix, "topo.rate=500 Mbit/s").wan_links:
        capacity = MATRICES[matrix].pair(link.a, link.b).capacity_gbit_s
        assert link.forward.rate_bit_s == min(5e8, 1e9 * (capacity or 1))
        assert ("topo.rate" in link.forward.source) == (capacity is None or capacity > 0.5)


@pytest.mark.parametrize(
    ("source", "target", "flow_gbit_s", "back_gbit_s"),
    [("oregon", "tokyo", 0.861, 0.523), ("virginia", "frankfurt", 0.521, 1.02), ("oregon", "virginia", 0.79, 0.79)],
)
def test_directions_that_were_measured_apart_are_kept_apart(
    source: str, target: str, flow_gbit_s: float, back_gbit_s: float
) -> None:
    for regions in ((source, target), (target, source)):
        (link,) = measured.build(matrix="dtfm-world8", workers=2, regions=regions).wan_links
        flows = {way[:2]: way[2].flow_rate_bit_s for way in link.directions()}
        assert flows == {(source, target): flow_gbit_s * 1e9, (target, source): back_gbit_s * 1e9}
        assert link.forward.rate_bit_s == link.backward.rate_bit_s == back_gbit_s * 1e9


def test_what_no_link_here_carries_is_held_and_said() -> None:
    (link,) = built("azure5", "topo.regions=[eastus,westus]").wan_links
    assert link.forward.rate_bit_s == CAP_BIT_S
    assert "held at 10 Gbit/s" in link.forward.source


def test_dilated_a_cloud_fits_a_small_machine() -> None:
    rates = [link.forward.rate_bit_s for link in built("aws8").dilated(8).wan_links]
    assert max(rates) < 1e9


def test_some_regions_in_the_users_order() -> None:
    topology = built("aws8", "topo.regions=[sa-east-1,us-east-1]", "workers=3")
    assert [node.name for node in topology.nodes] == ["sa-east-1-0", "sa-east-1-1", "us-east-1-0"]
    assert [link.name for link in topology.wan_links] == ["sa-east-1-us-east-1"]


def test_all_faults_of_a_matrix_come_at_once() -> None:
    with pytest.raises(InputError) as caught:
        measured.build(matrix="aws8", workers=1, regions=["us-east1", "us-east-1", "eu-west-1"], rate="5", loss="x")
    heads = [fault.split(":")[0] for fault in caught.value.faults]
    assert heads == ["topo.rate", "topo.regions", "topo.loss", "workers=1"]
    assert "did you mean us-east-1?" in caught.value.faults[1]
    with pytest.raises(InputError, match="known: us3, "):
        measured.build(matrix="mars1")
    with pytest.raises(InputError, match="must be given: ibm10 has round trips only"):
        measured.build(matrix="ibm10")


def test_lossy_loses_in_bursts() -> None:
    profile = built("lossy").wan_links[0].forward
    assert profile.gilbert_elliott is not None and 0.001 <= profile.loss_ratio <= 0.01
    assert built("lossy", "topo.loss_burst_packets=0").wan_links[0].forward.gilbert_elliott is None


def test_homes_are_100_ms_apart_behind_uplinks_of_200_mbit_s() -> None:
    topology = built("home", "workers=3")
    assert len(topology.regions) == 4 and len(topology.wan_links) == 3
    assert all(2 * link.rtt_s == 0.1 and link.forward.rate_bit_s == 2e8 for link in topology.wan_links)


def test_wan_rates() -> None:
    assert [built(name).wan_links[0].forward.rate_bit_s for name in WAN] == [1e7, 1e8, 1e9, 1e10]
