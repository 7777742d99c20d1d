from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.core.costs import alpha_beta as costs
from testbed.core.spec.topology import workers_per_region

WORLDS = st.integers(min_value=1, max_value=512)
SIZES = st.floats(min_value=0, max_value=1e12)


@given(regions=st.integers(min_value=1, max_value=32), more=st.integers(min_value=0, max_value=200))
def test_workers_are_spread_evenly_the_first_regions_larger(regions: int, more: int) -> None:
    blocks = workers_per_region(regions + more, regions)
    assert sum(blocks) == regions + more
    assert len(blocks) == regions
    assert max(blocks) - min(blocks) <= 1
    assert list(blocks) == sorted(blocks, reverse=True)


@pytest.mark.parametrize(("workers", "regions"), [(1, 2), (0, 1), (3, 0), (-1, 1)])
def test_an_empty_region_is_refused(workers: int, regions: int) -> None:
    with pytest.raises(ValueError, match=f"workers={workers}"):
        workers_per_region(workers, regions)


@given(size=SIZES)
def test_alone_nothing_is_sent(size: float) -> None:
    assert costs.all_reduce_sent_bytes(size, 1) == 0
    assert costs.all_gather_sent_bytes(size, 1) == 0
    assert costs.all_to_all_sent_bytes(size, 1) == 0
    assert costs.all_reduce_s(size, 1, 0.1, 1e-9) == 0
    assert costs.all_gather_s(size, 1, 0.1, 1e-9) == 0
    assert costs.all_to_all_s(size, 1, 0.1, 1e-9) == 0


def test_four_ranks_send_what_the_ring_sends() -> None:
    assert costs.all_reduce_sent_bytes(1000, 4) == 1500
    assert costs.all_gather_sent_bytes(1000, 4) == 3000
    assert costs.all_to_all_sent_bytes(1000, 4) == 750


@given(size=SIZES, world_size=WORLDS)
def test_all_reduce_is_reduce_scatter_and_all_gather_of_parts(size: float, world_size: int) -> None:
    parts = 2 * costs.all_gather_sent_bytes(size / world_size, world_size)
    assert costs.all_reduce_sent_bytes(size, world_size) == pytest.approx(parts)


def test_time_is_messages_and_bytes() -> None:
    assert costs.all_reduce_s(1000, 4, alpha_s=0.1, beta_s_byte=1e-3) == pytest.approx(6 * 0.1 + 1.5)
    assert costs.all_gather_s(1000, 4, alpha_s=0.1, beta_s_byte=1e-3) == pytest.approx(3 * 0.1 + 3.0)
    assert costs.all_to_all_s(1000, 4, alpha_s=0.1, beta_s_byte=1e-3) == pytest.approx(0.1 + 0.75)


@given(size=SIZES, world_size=WORLDS, more=st.floats(min_value=0, max_value=1e9))
def test_more_bytes_never_take_less_time(size: float, world_size: int, more: float) -> None:
    for cost in (costs.all_reduce_s, costs.all_gather_s, costs.all_to_all_s):
        assert cost(size + more, world_size, 0.03, 1e-8) >= cost(size, world_size, 0.03, 1e-8)
