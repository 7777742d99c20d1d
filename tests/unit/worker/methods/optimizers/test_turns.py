"""Parts of a tensor that take turns."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from testbed.worker.methods.optimizers.sparse_momenta import BLOCK, Turns

SIZES = [(160, 10), (9001, 7), (9015, 10), (9000, 500), (50, 3)]


def turns(elements: int, count: int, seed: int = 0) -> Turns:
    return Turns(elements, count, torch.Generator().manual_seed(seed))


def taken(of: Turns, flat: Tensor, turn: int) -> Tensor:
    out = torch.full((of.elements(turn),), -1.0)
    of.take(flat, turn, out)
    return out


@pytest.mark.parametrize(("elements", "count"), SIZES)
def test_each_element_has_one_turn(elements: int, count: int) -> None:
    of, flat = turns(elements, count), torch.arange(float(elements))
    parts = [taken(of, flat, turn) for turn in range(count)]
    assert torch.equal(torch.cat(parts).sort().values, flat)
    sizes = [len(part) for part in parts]
    assert max(sizes) - min(sizes) <= 2 * BLOCK - 1  # by a block, and where one is short by that much more


@pytest.mark.tier("all")
@pytest.mark.parametrize(("elements", "count"), SIZES)
def test_what_is_put_back_is_where_it_was_taken(elements: int, count: int) -> None:
    of, flat = turns(elements, count), torch.arange(float(elements))
    changed = flat.clone()
    for turn in range(count):
        of.put(taken(of, flat, turn) + 0.5, turn, changed)
        others = torch.cat([taken(of, changed, other) for other in range(turn + 1, count)] or [torch.empty(0)])
        assert torch.equal(others, others.floor())
    assert torch.equal(changed, flat + 0.5)


@pytest.mark.parametrize(("elements", "count"), SIZES)
def test_each_turn_has_its_factor(elements: int, count: int) -> None:
    of, flat = turns(elements, count), torch.ones(elements)
    of.scale(flat, torch.arange(float(count)))
    for turn in range(count):
        assert set(taken(of, flat, turn).tolist()) == {turn}


def test_the_seed_alone_decides() -> None:
    flat = torch.arange(9000.0)
    torch.manual_seed(5)
    state = torch.get_rng_state()
    first, same, other = (taken(turns(9000, 10, seed), flat, 3) for seed in (1, 1, 2))
    assert torch.equal(first, same)
    assert not torch.equal(first, other)
    assert torch.equal(torch.get_rng_state(), state)
