"""What a change of a link does to its queues: they hold one bandwidth-delay product of both directions' delays."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from testbed.core.spec.link_profile import LinkProfile
from testbed.core.spec.topology import Link, Topology
from testbed.orchestrator.emulation.kernel import tc, tcp
from testbed.orchestrator.emulation.links.network import Network
from testbed.orchestrator.emulation.links.port import Port

FORTH = LinkProfile(rate_bit_s=100e6, delay_s=0.03, source="assumed: a test")
BACK = LinkProfile(rate_bit_s=50e6, delay_s=0.07, source="assumed: a test")
LINK = Link(name="a-b", a="a", b="b", wan=True, forward=FORTH, backward=BACK)
TOPOLOGY = Topology(name="two", regions=("a", "b"), nodes=(), links=(LINK,))


class Limited(Port):
    """A port without an interface: it takes what it is given."""

    def change(self, profile: LinkProfile, settings: tc.RateSettings) -> None:
        self.profile = profile
        self.changes += settings != self.settings
        self.settings = settings


class Shaper:
    def __init__(self) -> None:
        self.changed: list[tuple[str, str]] = []

    def change(self, key: tuple[str, str], *_: object) -> None:
        self.changed.append(key)

    def read_back(self) -> dict[tuple[str, str], dict[str, Any]]:
        return {}


@pytest.fixture
def network() -> Network:
    found = Network(TOPOLOGY, tcp.profile("tuned", TOPOLOGY), "nfqueue", lambda event: None)
    nothing: Any = None
    found.ports = [
        Limited(LINK, source, target, nothing, "m0", 1, profile, tc.rate_settings(profile, LINK.rtt_s))
        for source, target, profile in LINK.directions()
    ]
    found.__dict__["shaper"] = Shaper()
    return found


def limits(network: Network) -> list[int]:
    return [port.settings.limit_bytes for port in network.ports]


def test_a_loss_leaves_the_queues_as_they_are(network: Network) -> None:
    assert limits(network) == [1_250_000, 625_000]  # 100 and 50 Mbit/s over 100 ms
    network.change("a-b", "b", replace(BACK, loss_ratio=0.01))
    assert limits(network) == [1_250_000, 625_000]
    assert [port.changes for port in network.ports] == [0, 0]
    assert network.shaper.changed == [("a-b", "b")]


def test_a_delay_moves_the_queues_of_both_directions(network: Network) -> None:
    network.change("a-b", "a", replace(FORTH, delay_s=0.13))
    assert limits(network) == [2_500_000, 1_250_000]
    network.change("a-b", "a", replace(FORTH, delay_s=0.13, rate_bit_s=10e6))
    assert limits(network) == [250_000, 1_250_000]
    assert network.shaper.changed == [("a-b", "a")] * 2, "the other direction's delay is as it was"


def test_a_queue_that_was_given_stays(network: Network) -> None:
    given = replace(FORTH, limit_bytes=300_000)
    network.change("a-b", "a", given)
    network.change("a-b", "a", replace(given, delay_s=0.2))
    assert limits(network)[0] == 300_000
