from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch
from torch import Tensor, nn

from testbed.worker.model.activation_cache import ActivationCache, Counts

SAMPLE_BYTES = 3 * 4


class Counting(nn.Module):
    """Adds a number, and notes how many samples it has seen."""

    def __init__(self, number: float) -> None:
        super().__init__()
        self.number, self.seen = number, 0

    def forward(self, hidden: Tensor) -> Tensor:
        self.seen += len(hidden)
        return hidden + self.number


def pieces(count: int) -> list[Counting]:
    return [Counting(10.0**place) for place in range(count)]


def through(cache: ActivationCache, chain: Sequence[nn.Module], *numbers: int) -> list[float]:
    """The first value of each sample; its inputs are its number."""
    asked = torch.tensor(numbers)
    made = cache.through(chain, asked, asked[:, None].expand(-1, 3).float())
    assert made.shape == (len(numbers), 3)
    return made[:, 0].tolist()


def test_what_was_seen_is_not_computed_again() -> None:
    cache, chain = ActivationCache(10**6), pieces(2)
    assert through(cache, chain, 5, 7) == [16.0, 18.0]
    assert through(cache, chain, 7, 9, 5) == [18.0, 20.0, 16.0]
    assert [piece.seen for piece in chain] == [3, 3]
    assert cache.take_counts() == Counts(whole=2, part=0, none=3)
    assert cache.take_counts() == Counts()


def test_what_was_kept_of_fewer_pieces_goes_through_the_others_alone() -> None:
    cache, chain = ActivationCache(10**6), pieces(4)
    through(cache, chain[:2], 1, 2)
    through(cache, chain[:3], 2)
    assert cache.depths(torch.tensor([1, 2, 3])) == [2, 3, 0]
    assert through(cache, chain, 3, 2, 1) == [1114.0, 1113.0, 1112.0]
    assert [piece.seen for piece in chain] == [3, 3, 3, 3]
    assert cache.take_counts() == Counts(whole=0, part=3, none=3)
    assert cache.depths(torch.tensor([1, 2, 3])) == [4, 4, 4]
    assert len(cache) == 3 and cache.size_bytes == 3 * SAMPLE_BYTES


def test_a_sample_twice_in_a_batch_is_kept_once() -> None:
    cache = ActivationCache(10**6)
    assert through(cache, pieces(1), 4, 4) == [5.0, 5.0]
    assert len(cache) == 1 and cache.size_bytes == SAMPLE_BYTES


def test_it_never_takes_more_than_it_may_and_what_comes_last_is_not_kept() -> None:
    cache, chain = ActivationCache(3 * SAMPLE_BYTES + 5), pieces(2)
    through(cache, chain, 0, 1)
    through(cache, chain, 2, 3, 4)
    assert cache.size_bytes == 3 * SAMPLE_BYTES
    assert cache.depths(torch.arange(5)) == [2, 2, 2, 0, 0]
    # an epoch in another order: as many are found as are kept
    cache.take_counts()
    through(cache, chain, 4, 2, 0, 3, 1)
    assert cache.take_counts() == Counts(whole=3, none=2)


def test_a_deeper_sample_takes_the_place_of_a_shallower_one() -> None:
    cache, chain = ActivationCache(2 * SAMPLE_BYTES), pieces(3)
    through(cache, chain[:1], 0, 1)
    through(cache, chain[:2], 0)
    through(cache, chain, 5)
    # of what has been through one piece, not of what has been through two
    assert cache.depths(torch.tensor([0, 1, 5])) == [2, 0, 3]
    through(cache, chain, 6, 7)
    assert cache.depths(torch.tensor([0, 5, 6, 7])) == [0, 3, 3, 0]
    assert cache.size_bytes == 2 * SAMPLE_BYTES


def test_one_too_small_for_a_sample_keeps_nothing() -> None:
    cache = ActivationCache(SAMPLE_BYTES - 1)
    assert through(cache, pieces(1), 1) == through(cache, pieces(1), 1) == [2.0]
    assert len(cache) == cache.size_bytes == 0
    with pytest.raises(ValueError, match="capacity_bytes=0"):
        ActivationCache(0)


def test_what_is_kept_is_nobody_elses() -> None:
    cache, chain = ActivationCache(10**6), pieces(1)
    asked = torch.tensor([3])
    cache.through(chain, asked, torch.zeros(1, 3)).fill_(99.0)
    assert cache.through(chain, asked, torch.zeros(1, 3)).tolist() == [[1.0] * 3]
    cache.through(chain, asked, torch.zeros(1, 3)).fill_(99.0)
    assert cache.through(chain, asked, torch.zeros(1, 3)).tolist() == [[1.0] * 3]
