from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compressors.base import alpha_beta

WORLDS = st.integers(min_value=1, max_value=512)
SIZES = st.floats(min_value=0, max_value=1e12)


@given(size=SIZES)
def test_alone_nothing_is_sent(size: float) -> None:
    assert alpha_beta.all_reduce_sent_bytes(size, 1) == 0
    assert alpha_beta.all_gather_sent_bytes(size, 1) == 0
    assert alpha_beta.all_to_all_sent_bytes(size, 1) == 0
    assert alpha_beta.all_reduce_s(size, 1, 0.1, 1e-9) == 0
    assert alpha_beta.all_gather_s(size, 1, 0.1, 1e-9) == 0
    assert alpha_beta.all_to_all_s(size, 1, 0.1, 1e-9) == 0


def test_four_ranks_send_what_the_ring_sends() -> None:
    assert alpha_beta.all_reduce_sent_bytes(1000, 4) == 1500
    assert alpha_beta.all_gather_sent_bytes(1000, 4) == 3000
    assert alpha_beta.all_to_all_sent_bytes(1000, 4) == 750


@given(size=SIZES, world_size=WORLDS)
def test_all_reduce_is_reduce_scatter_and_all_gather_of_parts(size: float, world_size: int) -> None:
    parts = 2 * alpha_beta.all_gather_sent_bytes(size / world_size, world_size)
    assert alpha_beta.all_reduce_sent_bytes(size, world_size) == pytest.approx(parts)


def test_time_is_messages_and_bytes() -> None:
    assert alpha_beta.all_reduce_s(1000, 4, alpha_s=0.1, beta_s_byte=1e-3) == pytest.approx(6 * 0.1 + 1.5)
    assert alpha_beta.all_gather_s(1000, 4, alpha_s=0.1, beta_s_byte=1e-3) == pytest.approx(3 * 0.1 + 3.0)
    assert alpha_beta.all_to_all_s(1000, 4, alpha_s=0.1, beta_s_byte=1e-3) == pytest.approx(0.1 + 0.75)


@given(size=SIZES, world_size=WORLDS, more=st.floats(min_value=0, max_value=1e9))
def test_more_bytes_never_take_less_time(size: float, world_size: int, more: float) -> None:
    for cost in (alpha_beta.all_reduce_s, alpha_beta.all_gather_s, alpha_beta.all_to_all_s):
        assert cost(size + more, world_size, 0.03, 1e-8) >= cost(size, world_size, 0.03, 1e-8)
