from __future__ import annotations

import dataclasses

import pytest

from testbed.core.spec.link_profile import LinkProfile
from testbed.core.spec.scale import scaled_size_bytes, scaled_topology, scaling_faults
from testbed.core.spec.topology import Link, Topology
from topologies import lan, two_regions

PROFILE = LinkProfile(
    rate_bit_s=1e9, delay_s=0.03, jitter_s=0.001, limit_bytes=1001, flow_rate_bit_s=4e8, source="assumed: a test"
)


def with_profile(**changes: object) -> Topology:
    topology = two_regions.build(workers=4)
    profile = dataclasses.replace(PROFILE, **changes)
    wide = (dataclasses.replace(link, forward=profile, backward=profile) for link in topology.wan_links)
    return dataclasses.replace(topology, links=(*wide, *topology.access_links))


def wan(topology: Topology) -> Link:
    return topology.wan_links[0]


def test_rates_and_queues_shrink_and_times_stay() -> None:
    whole = with_profile()
    scaled = wan(scaled_topology(whole, 10)).forward
    assert scaled == dataclasses.replace(PROFILE, rate_bit_s=1e8, limit_bytes=101, flow_rate_bit_s=4e7)
    assert scaled_topology(whole, 10).farthest_rtt_s == whole.farthest_rtt_s
    assert scaled_topology(whole, 1) is whole
    for before, after in zip(whole.access_links, scaled_topology(whole, 10).access_links, strict=True):
        assert after.forward.rate_bit_s == before.forward.rate_bit_s / 10
    assert wan(scaled_topology(with_profile(limit_bytes=0), 10)).forward.limit_bytes == 0


def test_a_bucket_takes_as_long_as_before() -> None:
    whole = with_profile()
    bucket = 4 * 2**20
    before_s = 8 * bucket / wan(whole).forward.rate_bit_s
    after_s = 8 * scaled_size_bytes(bucket, 16) / wan(scaled_topology(whole, 16)).forward.rate_bit_s
    assert after_s == before_s
    assert scaled_size_bytes(3, 100) == 1


def test_nothing_is_said_against_a_scale_that_holds() -> None:
    assert list(scaling_faults(with_profile(), 50, bucket_bytes=4 * 2**20)) == []
    assert list(scaling_faults(with_profile(loss_ratio=0.01), 1, bucket_bytes=1)) == []
    assert list(scaling_faults(lan.build(workers=2), 2, bucket_bytes=4 * 2**20)) == []


@pytest.mark.parametrize("changes", [{"loss_ratio": 0.01}, {"reorder_ratio": 0.01}, {"duplicate_ratio": 0.01}])
def test_packets_that_fare_by_chance_are_refused(changes: dict[str, float]) -> None:
    faults = list(scaling_faults(with_profile(**changes), 2, bucket_bytes=4 * 2**20))
    assert len(faults) == 2  # one a direction
    assert all("by chance" in fault for fault in faults)


def test_packets_that_would_take_too_long_are_refused_with_the_largest_scale() -> None:
    (fault,) = scaling_faults(with_profile(rate_bit_s=1e7), 50, bucket_bytes=40 * 2**20)
    assert "one packet would take 60.56 ms" in fault
    assert "2% of the longest round trip, 60 ms; use scale=1" in fault
    (fault,) = scaling_faults(with_profile(), 500, bucket_bytes=400 * 2**20)
    assert "use scale=99 at most" in fault
    assert list(scaling_faults(with_profile(), 99, bucket_bytes=400 * 2**20)) == []


def test_a_link_that_would_be_too_slow_and_buckets_that_would_be_too_small_are_refused() -> None:
    slow, small = scaling_faults(with_profile(rate_bit_s=1e6), 200, bucket_bytes=100_000)
    assert "would carry 5e+03 bit/s, below 10000; use scale=100 at most" in slow
    assert "each of 4 workers would send 125 B of a bucket of 100 kB at once" in small
    assert small.endswith("use scale=17 at most")
