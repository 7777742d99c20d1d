"""A network that a user describes link by link."""

from __future__ import annotations

from typing import Any

import pytest

from testbed.core.errors import InputError
from topologies import described

PLAIN = {"a": "paris", "b": "lima", "rate": "100 Mbit/s", "rtt": "180 ms", "source": "my ping of 2026-11-20"}


def faults(**parameters: Any) -> tuple[str, ...]:
    with pytest.raises(InputError) as caught:
        described.build(**{"regions": ["paris", "lima"], "links": [PLAIN], **parameters})
    return caught.value.faults


def test_a_link_both_ways_alike() -> None:
    topology = described.build(workers=3, regions=["paris", "lima"], links=[PLAIN])
    (link,) = topology.wan_links
    assert (link.name, link.forward) == ("paris-lima", link.backward)
    assert (link.rtt_s, link.forward.rate_bit_s, link.forward.source) == (0.18, 1e8, "my ping of 2026-11-20")
    assert [node.name for node in topology.nodes] == ["paris-0", "paris-1", "lima-0"]


def test_what_a_direction_says_of_itself_goes_before_what_the_link_says() -> None:
    backward = {"rate": "10 Mbit/s", "delay": "100 ms", "loss": "1%", "queue": "2 BDP", "source": "assumed: ADSL"}
    link = {**PLAIN, "name": "slow", "loss": "2%", "jitter": "1 ms", "flow_rate": "5 Mbit/s", "backward": backward}
    (found,) = described.build(regions=["paris", "lima"], links=[link]).wan_links
    assert found.name == "slow"
    assert (found.forward.rate_bit_s, found.forward.delay_s, found.forward.loss_ratio) == (1e8, 0.09, 0.02)
    assert (found.backward.rate_bit_s, found.backward.delay_s, found.backward.loss_ratio) == (1e7, 0.1, 0.01)
    assert found.forward.jitter_s == found.backward.jitter_s == 0.001
    assert found.backward.limit_bytes == 475_000, "of its own rate and the round trip of both"
    assert (found.backward.flow_rate_bit_s, found.backward.source) == (5e6, "assumed: ADSL")


def test_both_directions_may_stand_alone() -> None:
    ways = {"forward": {"rate": "5 Mbit/s", "delay": "3 ms"}, "backward": {"rate": "1 Mbit/s", "delay": "4 ms"}}
    link = {"a": "paris", "b": "lima", **ways}
    (found,) = described.build(regions=["paris", "lima"], links=[link], source="assumed: a test").wan_links
    assert found.rtt_s == pytest.approx(0.007)
    assert (found.forward.rate_bit_s, found.backward.rate_bit_s) == (5e6, 1e6)


def test_workers_of_each_region_and_a_router_without_any() -> None:
    links = [{**PLAIN, "b": "exchange"}, {**PLAIN, "a": "exchange"}]
    topology = described.build(workers=4, regions={"paris": 3, "exchange": 0, "lima": 1}, links=links)
    assert [node.region for node in topology.nodes] == ["paris", "paris", "paris", "lima"]
    assert faults(workers=5, regions={"paris": 3, "lima": 1}) == (
        "workers=5: the regions of described lay down 4 in all; leave workers out",
    )
    assert faults(regions={"paris": 0, "lima": 0}) == (
        "topo.regions: no region has a worker; give at least one of them some",
    )
    assert "topo.regions.lima='two'" in faults(regions={"paris": 1, "lima": "two"})[0]


def test_a_cap_is_the_users_and_said() -> None:
    (link,) = described.build(regions=["paris", "lima"], links=[PLAIN], rate="20 Mbit/s").wan_links
    assert link.forward.rate_bit_s == 2e7
    assert link.forward.source.startswith("rate assumed: held at topo.rate")
    (link,) = described.build(regions=["paris", "lima"], links=[PLAIN], rate="1 Gbit/s").wan_links
    assert (link.forward.rate_bit_s, link.forward.source) == (1e8, PLAIN["source"])


def test_every_fault_at_once_with_its_key() -> None:
    links = [
        {**PLAIN, "b": "lina", "rate": "1 Gbps"},
        {"a": "paris", "b": "paris", "rtt": 20, "sorce": "x", "forward": 3, "backward": {"rtt": "1 s"}},
        7,
        {**PLAIN, "queue": "3 apples", "forward": {"loss": 2, "rate": "50 Gbit/s"}},
    ]
    found = faults(links=links, lan_rate="fast", workers=1, rate="slow")
    for head in (
        "topo.rate: rate 'slow'",
        "topo.lan_rate: rate 'fast'",
        "workers=1: 2 regions need",
        "topo.links[0].b: must be one of the regions (paris, lima), found lina",
        "topo.links[0].rate: rate '1 Gbps'",
        "topo.links[1].sorce: unknown; did you mean source?",
        "topo.links[1].b: paris is the link's other end too",
        "topo.links[1].forward: must hold what differs",
        "topo.links[1].backward.rtt: unknown",
        "topo.links[1].rate: must be given, or rate in both",
        "topo.links[1].rtt: time 20: no unit",
        "topo.links[1].source: must say where",
        "topo.links[2]: must hold name, a, b",
        "topo.links[3].queue: queue '3 apples'",
        "topo.links[3].forward.loss: ratio 2",
        "topology described: link paris-lima from paris to lima: rate must be from",
    ):
        assert sum(line.startswith(head) for line in found) == 1, (head, found)
    assert len(found) == 16


def test_a_region_without_a_link_is_refused() -> None:
    assert faults(regions=["paris", "lima", "oslo"]) == (
        "topology described: no path to 'oslo', 'oslo-0'; join them by a link",
    )
    (line,) = faults(regions=[f"r{number}" for number in range(250)], links=[], workers=250)
    assert line.endswith("'r102', 'r102-0' and 488 more; join them by a link")


@pytest.mark.parametrize("source", [["my", "ping"], {"my": "ping"}, 7])
def test_a_source_is_text(source: Any) -> None:
    assert faults(links=[{**PLAIN, "source": source}]) == (f"topo.links[0].source: must be text, found {source!r}",)
    assert faults(links=[{**PLAIN, "backward": {"source": source}}])[0].startswith("topo.links[0].source: must be text")


@pytest.mark.parametrize("count", [4097, 300_000, 10**30, -1, 1.5, True, "1:10", None])
def test_a_count_of_workers_has_bounds(count: Any) -> None:
    (line,) = faults(regions={"paris": count, "lima": 1})
    assert line == f"topo.regions.paris={count!r}: must be how many workers it has, from 0 to 4096"


def test_the_sum_of_workers_has_a_bound() -> None:
    (line,) = faults(regions={"paris": 4000, "lima": 4000})
    assert line.startswith("topo.regions: 8000 workers in all; must be at most 4096")


@pytest.mark.parametrize(
    ("name", "cause"),
    [
        ("", "the name '' is empty"),
        ("../../outside", "must be letters, digits and inner hyphens"),
        ("PAR/LIM", "must be letters, digits and inner hyphens"),
        (".", "must be letters"),
        ("-x", "must be letters"),
        ("a b", "must be letters"),
        ("a\nb", "must be letters"),
        ("Málaga", "must be letters"),
        ("x" * 82, "81 at most"),
        ("all", "reserved: it is this testbed's"),
        ("host", "reserved: it is containerlab's"),
    ],
)
def test_names_follow_one_rule(name: str, cause: str) -> None:
    (line,) = faults(links=[{**PLAIN, "name": name}])
    assert line.startswith("topo.links[0].name: ") and cause in line
    others = faults(regions=["paris", "lima", name], workers=3)
    assert any(cause.replace("81", "40") in line for line in others), others


@pytest.mark.parametrize("name", ["others", "localhost", "mgmt-net", "dummy", "c0", "wan0", "WAN12", "x" * 41])
def test_names_of_regions_leave_out_those_of_exports_and_of_our_own(name: str) -> None:
    assert any(
        "reserved" in line or "40 at most" in line for line in faults(regions=["paris", "lima", name], workers=3)
    )
