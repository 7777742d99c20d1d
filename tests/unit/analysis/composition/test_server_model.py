"""A round of clients side by side, by hand."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.analysis.composition.server_model import Serving, Uplinks, round_s

MBIT = 1e6
LINKS = Uplinks(rate_bit_s=8 * MBIT, server_rate_bit_s=16 * MBIT, delay_s=0.5)
MB = 1e6


def test_up_to_the_servers_rate_nobody_waits_for_others() -> None:
    assert LINKS.arrivals_s([0.0, 0.0], MB) == [1.5, 1.5]
    assert LINKS.arrivals_s([0.0, 3.0], MB) == [1.5, 4.5]


def test_beyond_it_all_share_it_and_who_is_left_has_more() -> None:
    assert LINKS.arrivals_s([0.0] * 4, MB) == [2.5] * 4
    # three at 16/3 until 0.75 s, when the last comes in; each has 4 left of 8, four have 4 each: 1 s until three end;
    # the last has 4 left and its own 8: 0.5 s
    assert LINKS.arrivals_s([0.75, 0.0, 0.0, 0.0], MB) == pytest.approx([2.75, 2.25, 2.25, 2.25])


def test_a_round_is_there_the_longest_client_and_back() -> None:
    assert round_s([1.0, 2.0], LINKS, down_bytes=MB, up_bytes=2 * MB) == pytest.approx(1.5 + 2.0 + 2.5)
    assert round_s([0.0] * 4, LINKS, down_bytes=MB, up_bytes=MB) == pytest.approx(5.0)


def test_the_server_takes_updates_one_after_another_as_they_come() -> None:
    serving = Serving(before_s=1.0, each_s=2.0, after_s=0.5)
    # there at 3, 10 and 11 s: the third waits until the second is decoded
    assert serving.done_s([10.0, 3.0, 11.0]) == 14.5
    found = round_s([1.0, 9.0], LINKS, down_bytes=MB, up_bytes=MB, serving=serving)
    assert found == pytest.approx(1.0 + 1.5 + 9.0 + 1.5 + 2.0 + 0.5)
    with pytest.raises(ValueError, match=r"(?s)before_s=-1.*each_s=inf"):
        Serving(before_s=-1, each_s=float("inf"))


def test_updates_may_go_over_other_links_than_models() -> None:
    slow = Uplinks(rate_bit_s=4 * MBIT, server_rate_bit_s=4 * MBIT, delay_s=0.5)
    assert round_s([1.0], LINKS, down_bytes=MB, up_bytes=MB, up_links=slow) == pytest.approx(1.5 + 1.0 + 2.5)


def test_of_messages_that_overlap_each_gets_as_much() -> None:
    # the first is alone for half of it, then gets half as much until it is done, and leaves the second a quarter
    slow = Uplinks(rate_bit_s=16 * MBIT, server_rate_bit_s=16 * MBIT, delay_s=0.0)
    assert slow.arrivals_s([0.0, 0.25, 10.0], MB) == pytest.approx([0.75, 1.0, 10.5])


@given(st.lists(st.floats(0, 10), min_size=1, max_size=12), st.floats(1, 1e7))
def test_never_shorter_than_the_longest_alone_nor_longer_than_one_after_another(
    compute_s: list[float], size_bytes: float
) -> None:
    found = round_s(compute_s, LINKS, down_bytes=size_bytes, up_bytes=size_bytes)
    alone = [round_s([one], LINKS, down_bytes=size_bytes, up_bytes=size_bytes) for one in compute_s]
    assert max(alone) * (1 - 1e-9) <= found <= sum(alone) * (1 + 1e-9)


def test_all_faults_are_told_at_once() -> None:
    with pytest.raises(ValueError, match=r"(?s)rate_bit_s=0.*server_rate_bit_s=-1.*delay_s=-1"):
        Uplinks(rate_bit_s=0, server_rate_bit_s=-1, delay_s=-1)
    with pytest.raises(ValueError, match="no client"):
        round_s([], LINKS, down_bytes=1, up_bytes=1)
    with pytest.raises(ValueError, match=r"compute_s\[1\]=-1"):
        round_s([0, -1], LINKS, down_bytes=1, up_bytes=1)
