"""Closed forms of NCCL's and Gloo's collectives: against published times of AWS clusters, and at their limits."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from testbed.core.costs.sockets import GLOO, LIBRARIES, MIB, NCCL, Cluster, Nccl
from tests.unit.analysis.synthetic import make_spec

ALL_REDUCES = {  # nodes, one-way delay in ms, Gbit/s: ms of NCCL and Gloo for 128 and for 256 MiB
    (4, 1, 5): ((329, 655), (485, 959)),
    (4, 5, 2): ((835, 1650), (1517, 2989)),
    (4, 10, 1): ((1669, 3298), (2993, 5909)),
    (8, 1, 5): ((383, 763), (537, 1111)),
    (8, 5, 2): ((970, 1921), (1814, 3562)),
    (8, 10, 1): ((1940, 3841), (3582, 6999)),
}
ROWS = [
    (cluster, size_mib, nccl_ms, gloo_ms)
    for cluster, (nccl, gloo) in ALL_REDUCES.items()
    for size_mib, nccl_ms, gloo_ms in zip((128, 256), nccl, gloo, strict=True)
]
ONE_GBIT = Cluster(nodes=4, rate_bit_s=1e9, round_trip_s=0.02, mtu_bytes=9001)


def aws(nodes: int, delay_ms: float, rate_gbit_s: float) -> Cluster:
    return Cluster(
        nodes=nodes,
        rate_bit_s=rate_gbit_s * 1e9,
        round_trip_s=2e-3 * delay_ms,
        mtu_bytes=9001,
        flow_cap_bit_s=5e9,
    )


@pytest.mark.parametrize(("cluster", "size_mib", "nccl_ms", "gloo_ms"), ROWS)
def test_all_reduces_are_those_that_were_measured(cluster, size_mib, nccl_ms, gloo_ms):
    of = aws(*cluster)
    assert 1e3 * NCCL.all_reduce_s(size_mib * MIB, of) == pytest.approx(nccl_ms, rel=0.0022)
    assert 1e3 * GLOO.all_reduce_s(size_mib * MIB, of) == pytest.approx(gloo_ms, rel=0.0276)


def test_without_shaping_a_flow_cap_explains_gloo():
    open_10g = replace(aws(4, 0, 10), round_trip_s=0.2e-3)
    assert 1e3 * GLOO.all_reduce_s(256 * MIB, open_10g) == pytest.approx(657, rel=0.01)
    uncapped = replace(open_10g, flow_cap_bit_s=math.inf)
    assert GLOO.all_reduce_s(256 * MIB, uncapped) < 0.7 * GLOO.all_reduce_s(256 * MIB, open_10g)
    assert NCCL.all_reduce_s(256 * MIB, uncapped) == NCCL.all_reduce_s(256 * MIB, open_10g)


@pytest.mark.parametrize("library", LIBRARIES.values(), ids=LIBRARIES)
def test_gloo_sends_messages_between_two_nodes_as_measured_and_nccl_too(library):
    measured_ms = {NCCL: 1083, GLOO: 1160}[library]
    assert 1e3 * library.send_s(128 * MIB, aws(2, 10, 1)) == pytest.approx(measured_ms, rel=0.01)


@pytest.mark.parametrize("scale", [4, 16])
@pytest.mark.parametrize("size_mib", [8, 256])
def test_tensors_and_links_that_are_smaller_alike_take_as_long(scale, size_mib):
    of = aws(8, 10, 1)
    smaller = replace(of, rate_bit_s=of.rate_bit_s / scale, window_bytes=of.window_bytes / scale)
    scaled_s = NCCL.scaled(scale).all_reduce_s(size_mib * MIB / scale, smaller)
    assert scaled_s == pytest.approx(NCCL.all_reduce_s(size_mib * MIB, of), rel=1e-3)
    if size_mib == 256:
        far = replace(smaller, round_trip_s=1.0)  # a round trip outlasts a chunk, whose size counts then
        assert NCCL.all_reduce_s(size_mib * MIB / scale, far) < 0.5 * NCCL.scaled(scale).all_reduce_s(
            size_mib * MIB / scale, far
        )


def test_a_run_names_its_sockets_and_its_scale():
    spec = make_spec()
    assert Nccl.of(spec) == NCCL
    asked = Nccl.of(replace(spec, connections=8, scale=4.0))
    assert [Nccl.of(replace(spec, connections=count)).threads for count in (2, 8, 16, 32)] == [1, 4, 2, 2]
    assert (asked.connections, asked.sockets, asked.chunk_bytes) == (8, 4, NCCL.chunk_bytes // 4)


def test_a_host_s_time_for_each_slice_costs_a_ring_nothing_until_it_outlasts_the_wire():
    """On the wire a chunk takes 33.8 ms at 1 Gbit/s; half of it and half a round trip leave 6.9 ms."""
    size = 256 * MIB
    assert Nccl(host_s=6e-3).all_reduce_s(size, ONE_GBIT) == NCCL.all_reduce_s(size, ONE_GBIT)
    slow = Nccl(host_s=20e-3).all_reduce_s(size, ONE_GBIT)
    sends = 6 * size / 4 / (4 * MIB)
    circling_s = 4 * MIB * 8 * ONE_GBIT.wire_ratio / 1e9 / 2 + 0.01 + 20e-3
    assert slow == pytest.approx(sends * circling_s + 2.5 * 0.02)
    assert Nccl(host_s=80e-3).all_reduce_s(size, ONE_GBIT) == pytest.approx(sends * 2 * 80e-3 + 2.5 * 0.02)


@pytest.mark.parametrize(("nodes", "size_mib", "ms"), [(4, 128, 175), (4, 256, 363), (8, 128, 208), (8, 256, 443)])
def test_without_shaping_a_host_s_time_for_each_slice_explains_nccl(nodes, size_mib, ms):
    open_10g = replace(aws(nodes, 0, 10), round_trip_s=0.2e-3)
    assert 1e3 * NCCL.all_reduce_s(size_mib * MIB, open_10g) < 0.94 * ms
    assert 1e3 * Nccl(host_s=1.9e-3).all_reduce_s(size_mib * MIB, open_10g) == pytest.approx(ms, rel=0.05)


def test_delay_costs_a_nccl_ring_nothing_until_a_round_trip_outlasts_a_chunk():
    size = 256 * MIB
    starts_s = NCCL.start_round_trips * ONE_GBIT.round_trip_s
    ring_s = 1.5 * 8 * ONE_GBIT.wire_ratio * size / 1e9
    assert NCCL.all_reduce_s(size, ONE_GBIT) == pytest.approx(ring_s + starts_s)
    at_100_ms = replace(ONE_GBIT, round_trip_s=0.1)
    circulates_s = 4 * MIB * 8 * ONE_GBIT.wire_ratio / 1e9
    slower = (circulates_s / 2 + 0.05) / circulates_s
    assert NCCL.all_reduce_s(size, at_100_ms) == pytest.approx(slower * ring_s + 0.25)
    assert slower == pytest.approx(1.98, abs=0.01)


def test_a_small_tensor_pays_each_hop_of_the_ring():
    found_s = NCCL.all_reduce_s(4, ONE_GBIT)
    assert found_s == pytest.approx(6 * 0.01 + 2.5 * 0.02, rel=1e-3)
    assert NCCL.all_reduce_s(0, ONE_GBIT) == pytest.approx(found_s, rel=1e-3)


@pytest.mark.parametrize(("nodes", "segments"), [(4, 128), (3, 129), (100, 200), (65, 130)])
def test_gloo_cuts_a_tensor_for_its_nodes(nodes, segments):
    assert GLOO.segments(128 * MIB, nodes) == segments


def test_a_broadcast_of_gloo_goes_down_a_tree_and_one_of_nccl_along_a_chain():
    alone_s = 8 * ONE_GBIT.wire_ratio * 128 * MIB / 1e9
    eight = replace(ONE_GBIT, nodes=8)
    assert GLOO.broadcast_s(128 * MIB, eight) == pytest.approx(6 * alone_s + 0.02)
    assert NCCL.broadcast_s(128 * MIB, eight) == pytest.approx(alone_s * (1 + 12 / 128) + 7 * 0.01 + 2 * 0.02)
    assert NCCL.reduce_s(128 * MIB, eight) == NCCL.broadcast_s(128 * MIB, eight)


def test_a_host_s_time_for_each_slice_costs_a_chain_its_hops_until_it_outlasts_the_wire():
    """Two channels have 128 slices each; one of each takes 8.8 ms on the wire at 1 Gbit/s, together."""
    size, eight = 128 * MIB, replace(ONE_GBIT, nodes=8)
    quick_s = NCCL.broadcast_s(size, eight)
    assert Nccl(host_s=6e-3).broadcast_s(size, eight) == pytest.approx(quick_s + 7 * 6e-3)
    wire_s = 8 * ONE_GBIT.wire_ratio * size / 1e9
    assert Nccl(host_s=20e-3).broadcast_s(size, eight) == pytest.approx(quick_s - wire_s + (127 + 7) * 20e-3)
    assert Nccl(host_s=20e-3).broadcast_s(0, eight) == pytest.approx(0.11 + 7 * 20e-3 + 12 / 128 * wire_s)


@pytest.mark.parametrize("library", LIBRARIES.values(), ids=LIBRARIES)
def test_one_node_alone_waits_for_nobody(library):
    alone = replace(ONE_GBIT, nodes=1)
    assert [f(MIB, alone) for f in (library.all_reduce_s, library.broadcast_s, library.reduce_s)] == [0, 0, 0]


def test_a_window_limits_each_connection():
    far = replace(ONE_GBIT, rate_bit_s=7e9, round_trip_s=0.103)
    assert [far.reached_bit_s(streams) / streams for streams in (1, 5, 20)] == pytest.approx([0.215e9] * 3, rel=0.01)
    assert far.reached_bit_s(80) == 7e9
    assert replace(far, round_trip_s=0).reached_bit_s(1) == 7e9


def test_new_connections_start_slowly_where_their_first_windows_do_not_fill_the_path():
    assert ONE_GBIT.slow_start_s(32) == 0
    assert ONE_GBIT.slow_start_s(1) / ONE_GBIT.round_trip_s == pytest.approx(3.8, abs=0.1)
