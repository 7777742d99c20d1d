"""Chains from one rank to all, or from all to one, against their closed form."""

from __future__ import annotations

import numpy as np
import pytest

from testbed.analysis.simulator.model.constants import IDEAL
from testbed.analysis.simulator.model.network import Network
from testbed.analysis.simulator.timeline.carriers import Carriers
from testbed.analysis.simulator.timeline.collectives import BROADCAST, REDUCTION
from testbed.core.costs import collective
from testbed.core.spec.paths import WIRE_RATIO
from testbed.core.spec.topology import Topology
from topologies import lan, two_regions

RATE_BIT_S = 1e8
SECOND_BYTE = 8 * WIRE_RATIO / RATE_BIT_S


def slow(workers: int) -> Topology:
    return lan.build(workers=workers, lan_rate=f"{RATE_BIT_S} bit/s")


@pytest.mark.parametrize("kind", [BROADCAST, REDUCTION])
@pytest.mark.parametrize("root", [0, 3])
def test_a_chain_takes_its_closed_form(kind: str, root: int) -> None:
    topology, size = slow(5), 4_000_000
    network = Network(topology, IDEAL)
    carriers = Carriers(network)
    end_s = carriers.end_s(carriers.issue_chain(kind, size, np.zeros(5), root))
    assert end_s.max() == pytest.approx(collective.chain_seconds(size, topology), rel=1e-6)
    last = (root - 1) % 5 if kind == BROADCAST else root
    assert end_s[last] == end_s.max()


def test_chains_follow_each_other_as_ranks_have_done_their_part() -> None:
    """The second rank sends its own tensor once it has passed on the first one's, which others still pass on."""
    topology, size = slow(5), 400_000
    carriers = Carriers(Network(topology, IDEAL))
    chains = [carriers.issue_chain(BROADCAST, size, np.zeros(5), root) for root in range(5)]
    end_s = max(float(carriers.end_s(one).max()) for one in chains)
    alone_s = collective.chain_seconds(size, topology)
    assert 4 * size * SECOND_BYTE < end_s < 4.5 * alone_s


def test_chains_and_gloo_share_links_but_no_thread() -> None:
    topology, size = slow(2), 1_000_000
    carriers = Carriers(Network(topology, IDEAL))
    ring, chain = (
        carriers.issue("all_reduce", size, np.zeros(2)),
        carriers.issue_chain(REDUCTION, size, np.zeros(2), 0),
    )
    end_s = max(carriers.end_s(ring).max(), carriers.end_s(chain).max())
    assert end_s == pytest.approx(2 * size * SECOND_BYTE, rel=1e-6)


def test_receives_that_are_posted_ahead_hide_latency() -> None:
    """One notice and one way; chunks of 1.1 ms then follow each other over the WAN, as eight last for a round trip."""
    size = 40 * 128 * 1024
    topology = two_regions.build(workers=4, rate="1 Gbit/s", rtt="8 ms", lan_rate="10 Gbit/s")
    carriers = Carriers(Network(topology, IDEAL))
    end_s = carriers.end_s(carriers.issue_chain(BROADCAST, size, np.zeros(4), 0))
    bytes_s = size * 8 * WIRE_RATIO / 1e9
    assert bytes_s + 0.008 < end_s.max() < bytes_s + 0.02


def test_reductions_to_neighbours_follow_each_other_only_downwards() -> None:
    """The root of one is the last rank to be done with it, and the first of the chain to the rank after it; the first
    of the chain to the rank before it was done early."""
    topology, size = slow(8), 400_000
    took_s = {}
    for name, roots in (("up", range(8)), ("down", range(7, -1, -1))):
        carriers = Carriers(Network(topology, IDEAL))
        chains = [carriers.issue_chain(REDUCTION, size, np.zeros(8), root) for root in roots]
        took_s[name] = max(float(carriers.end_s(one).max()) for one in chains)
    assert took_s["up"] == pytest.approx(8 * collective.chain_seconds(size, topology), rel=1e-6)
    assert took_s["down"] < 0.6 * took_s["up"]
