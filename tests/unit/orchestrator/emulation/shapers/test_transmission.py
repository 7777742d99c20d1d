"""Packets that a bucket let pass at once, against a link that takes its time for each byte."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.core.spec.link_profile import ETHERNET_BYTES, TCP_IP_BYTES
from testbed.orchestrator.emulation.shapers.transmission import Transmission

RATE_BIT_S, BURST_BYTES, MTU_BYTES = 1e9, 130_000, 1500
SUPER_PACKET = 44 * (MTU_BYTES - TCP_IP_BYTES) + TCP_IP_BYTES
WIRE_BYTES = 44 * (MTU_BYTES + ETHERNET_BYTES)


def link() -> Transmission:
    return Transmission(RATE_BIT_S, 8 * BURST_BYTES / RATE_BIT_S, MTU_BYTES)


def through_bucket(packets: list[tuple[float, int]]) -> list[float]:
    """Return when packets of (arrival, bytes on the wire) leave a bucket as tbf has it, full at first."""
    tokens, at_s, left_s = float(BURST_BYTES), 0.0, 0.0
    leave_s = []
    for arrived_s, size_bytes in packets:
        left_s = max(left_s, arrived_s)
        tokens = min(BURST_BYTES, tokens + (left_s - at_s) * RATE_BIT_S / 8)
        left_s += max(0.0, size_bytes - tokens) * 8 / RATE_BIT_S
        tokens = max(0.0, tokens - size_bytes)
        at_s = left_s
        leave_s.append(left_s)
    return leave_s


def ideal(packets: list[tuple[float, int]]) -> list[float]:
    """Return when a link without a bucket has sent them."""
    free_s, sent_s = 0.0, []
    for arrived_s, size_bytes in packets:
        free_s = max(free_s, arrived_s) + 8 * size_bytes / RATE_BIT_S
        sent_s.append(free_s)
    return sent_s


@given(st.lists(st.tuples(st.floats(0, 3e-3), st.integers(1, 44)), min_size=1, max_size=60))
def test_packets_are_sent_as_on_a_link_without_a_bucket(drawn: list[tuple[float, int]]) -> None:
    at_s, packets = 0.0, []
    for waited_s, frames in drawn:
        at_s += waited_s
        packets.append((at_s, frames * (MTU_BYTES + ETHERNET_BYTES)))
    sizes = [frames * (MTU_BYTES - TCP_IP_BYTES) + TCP_IP_BYTES for _, frames in drawn]
    direction = link()
    sent_s = [direction.sent_s(left, size) for left, size in zip(through_bucket(packets), sizes, strict=True)]
    assert sent_s == pytest.approx(ideal(packets), abs=1e-9)


def test_a_full_link_sends_at_its_buckets_rate_whatever_headers_are_reckoned() -> None:
    direction = link()
    leave_s = [at * 8 * (WIRE_BYTES - 500) / RATE_BIT_S for at in range(10_000)]
    sent_s = [direction.sent_s(at_s, SUPER_PACKET) for at_s in leave_s]
    assert sent_s[-1] - leave_s[-1] <= 8 * BURST_BYTES / RATE_BIT_S


def test_a_late_wake_up_that_the_bucket_makes_up_for_delays_nothing() -> None:
    direction, each_s = link(), 8 * WIRE_BYTES / RATE_BIT_S
    on_time = through_bucket([(0.0, WIRE_BYTES)] * 6)
    late = [*on_time[:3], on_time[3] + 0.9 * (8 * BURST_BYTES / RATE_BIT_S - each_s), *on_time[4:]]
    assert [direction.sent_s(at_s, SUPER_PACKET) for at_s in late] == pytest.approx([each_s * n for n in range(1, 7)])


def test_a_super_packet_in_transit_waits_for_its_last_frame_alone() -> None:
    assert link().sent_s(1.0, SUPER_PACKET, is_in_transit=True) == pytest.approx(1.0 + 8 * 1514 / RATE_BIT_S)
    direction = link()
    several = [direction.sent_s(1.0, SUPER_PACKET, is_in_transit=True) for _ in range(2)]
    assert several[1] - several[0] == pytest.approx(8 * WIRE_BYTES / RATE_BIT_S), "two that come at once share the link"


def test_a_bucket_that_was_asked_for_is_left_alone() -> None:
    assert Transmission(RATE_BIT_S, 0.0, MTU_BYTES).sent_s(1.0, SUPER_PACKET) == 1.0


def test_an_acknowledgement_is_one_frame() -> None:
    assert math.isclose(link().sent_s(0.0, TCP_IP_BYTES), 8 * 66 / RATE_BIT_S)
