"""Networks whose WAN links are all alike, asked for anew."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from testbed.core.errors import InputError
from testbed.core.spec.topology import Topology, uniform_rtt_s, with_wan
from topologies import full_mesh, hierarchical, lan, ring, star, two_regions


@pytest.mark.parametrize("build", [two_regions.build, star.build, ring.build, full_mesh.build])
def test_new_links_are_those_that_a_run_would_ask_for(build: Callable[..., Topology]) -> None:
    asked = build(workers=4, rate="30 Mbit/s", rtt="90 ms")
    found = with_wan(build(workers=4), 30e6, 0.09)
    assert uniform_rtt_s(found) == pytest.approx(0.09)
    for one, other in zip(found.links, asked.links, strict=True):
        assert (one.name, one.wan) == (other.name, other.wan)
        for (*ends, profile), (*same, wanted) in zip(one.directions(), other.directions(), strict=True):
            assert ends == same
            assert profile.rate_bit_s == wanted.rate_bit_s
            assert profile.delay_s == pytest.approx(wanted.delay_s)


def test_networks_without_such_links_are_refused_by_name() -> None:
    with pytest.raises(InputError, match="topo=lan: it has no WAN link"):
        uniform_rtt_s(lan.build(workers=2))
    with pytest.raises(InputError, match="topo=hierarchical: its WAN links differ"):
        uniform_rtt_s(hierarchical.build(workers=4))


def test_jitter_that_a_nearer_link_cannot_have_is_refused() -> None:
    topology = two_regions.build(workers=2, rtt="100 ms", jitter="20 ms")
    assert with_wan(topology, 1e8, 0.05).wan_links[0].forward.jitter_s == 0.02
    with pytest.raises(InputError, match="jitter must be from 0 to the delay"):
        with_wan(topology, 1e8, 0.03)
