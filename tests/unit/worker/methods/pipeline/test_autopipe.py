"""PipeTransformer's plans: figures of the authors' code, and of its rules by hand."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.worker.methods.pipeline.autopipe import (
    balanced,
    initial_pipeline,
    next_frozen,
    pipeline_for,
    scheduled_frozen,
)

TOY = [1.5] + [2.0, 1.0] * 11 + [2.2]
"""Twelve layers of attention 1 and MLP 2, with embeddings of 0.5 and a head of 0.2."""


def _sizes(width: int, layers: int) -> list[float]:
    """Millions of parameters: of attention and of the MLP with their norms."""
    return [4 * width * (width + 1.5) / 1e6, (8 * width * width + 7 * width) / 1e6] * layers


def _lengths(sizes: list[float], length: int, alpha: float, *, weight: float = 0.0) -> list[int]:
    """Of the pipeline, after 0 to 9 epochs of the schedule."""
    start = initial_pipeline(sizes, length)
    found = []
    for epoch in range(10):
        frozen = 2 * scheduled_frozen(len(sizes) // 2, alpha, epoch)
        length = pipeline_for(sizes, frozen, length, start.largest, frozen_weight=weight).length
        found.append(length)
    return found


@pytest.mark.parametrize(
    ("layers", "frozen"),
    [(12, [0, 4, 7, 9, 10, 11, 11, 12, 12, 12]), (24, [0, 8, 14, 17, 20, 21, 22, 23, 24, 24])],
)
def test_the_published_schedule(layers: int, frozen: list[int]) -> None:
    assert [scheduled_frozen(layers, 1 / 3, epoch) for epoch in range(10)] == frozen


@given(st.integers(1, 48), st.floats(0.01, 0.9), st.integers(1, 12))
def test_the_schedule_is_the_published_sum(layers: int, alpha: float, epoch: int) -> None:
    kept = 1 - alpha
    terms = alpha * layers / kept + sum(alpha * layers / kept**t for t in range(2, epoch + 1))
    assert scheduled_frozen(layers, alpha, epoch) == pytest.approx(kept**epoch * terms, abs=1 + 1e-6)
    assert scheduled_frozen(layers, alpha, epoch) >= kept**epoch * terms - 1e-6
    assert scheduled_frozen(layers, alpha, epoch) >= scheduled_frozen(layers, alpha, epoch - 1)


def test_gradients_freeze_up_to_the_smallest_norm_inside_the_budget() -> None:
    assert next_frozen(0, 0.5, [3, 1, 2, 0.5]) == 2  # the smallest is at 3, but only half may freeze
    assert next_frozen(0, 0.5, [3, 1, 2, 4]) == 1
    assert next_frozen(1, 0.5, [0, 3, 2, 2]) == 2  # frozen layers are not looked at; of equal ones the first
    assert next_frozen(0, 0.5, [1, 2, 3, 4]) == 0
    assert next_frozen(4, 0.5, [1, 1, 1, 1]) == 4
    # of 12 layers a third of what is active, as the schedule has it, where the last is always the smallest
    assert next_frozen(0, 1 / 3, list(range(12, 0, -1))) == 4


@given(st.lists(st.floats(0, 9), min_size=1, max_size=20), st.floats(0.01, 0.99), st.data())
def test_what_is_frozen_only_grows(norms: list[float], alpha: float, data: st.DataObject) -> None:
    frozen = data.draw(st.integers(0, len(norms)))
    assert frozen <= next_frozen(frozen, alpha, norms) <= len(norms)


def test_norms_that_are_none_are_refused() -> None:
    with pytest.raises(ValueError, match=r"gradient_norms\[1\]=nan") as found:
        next_frozen(1, 0.5, [float("nan"), float("nan"), -1.0])
    assert "gradient_norms[2]=-1.0" in str(found.value) and "gradient_norms[0]" not in str(found.value)
    with pytest.raises(ValueError, match=r"alpha=1\.5") as found:
        next_frozen(3, 1.5, [1.0])
    assert "frozen=3" in str(found.value)


def test_greedy_balance_by_hand() -> None:
    # mean 6/2 and variance 0: as much as stays below 3
    assert balanced([1, 1, 1, 1, 1, 1], 2) == [2, 4]
    # mean 12/2 = 6, variance of 1 2 1 8 is 34/4, over 2: below 10.25
    assert balanced([1, 2, 1, 8], 2) == [3, 1]
    # 8 is never below mean 4 and variance 0.22 x ... and yet a stage takes one
    assert balanced([8, 1, 1], 3) == [1, 1, 1]
    with pytest.raises(ValueError, match="stages=3: there are 2 sub-layers"):
        balanced([1, 1], 3)


@pytest.mark.parametrize(
    ("sizes", "length", "alpha", "lengths"),
    [
        (_sizes(768, 12), 8, 1 / 3, [8, 4, 4, 2, 1, 1, 1, 1, 1, 1]),
        (_sizes(768, 12), 8, 1 / 5, [8, 8, 4, 4, 2, 2, 2, 1, 1, 1]),
        (TOY, 4, 1 / 3, [4, 4, 2, 1, 1, 1, 1, 1, 1, 1]),
    ],
)
def test_how_long_the_pipeline_is_as_the_code_has_it(
    sizes: list[float], length: int, alpha: float, lengths: list[int]
) -> None:
    assert _lengths(sizes, length, alpha) == lengths


def test_how_long_the_pipeline_is_where_frozen_memory_counts() -> None:
    published = 1 / 6  # lambda_frozen of the paper's pseudo-code
    assert _lengths(_sizes(768, 12), 8, 1 / 3, weight=published)[:5] == [8, 8, 8, 4, 4]
    large = _sizes(1024, 24)  # BERT-large's blocks
    # never because it fits: from epoch 5 on 6, 4, 2 and 0 sub-layers are active, too few for as many stages
    assert _lengths(large, 8, 1 / 3, weight=published) == [8, 8, 8, 8, 8, 4, 4, 2, 1, 1]


def test_cuts_and_micro_batches_of_a_shorter_pipeline() -> None:
    sizes = [1.0] * 8
    start = initial_pipeline(sizes, 4)
    assert (start.cuts, start.largest, start.micro_batches) == ((0, 1, 3, 5), 3.0, 16)
    # five are active, whose halves of 2 and 3 are no larger than what there was; one stage of 5 would be
    shorter = pipeline_for(sizes, 3, 4, start.largest)
    assert (shorter.length, shorter.cuts, shorter.largest, shorter.micro_batches) == (2, (0, 5), 3.0, 16)
    heavier = pipeline_for(sizes, 3, 4, start.largest, frozen_weight=1.0)
    assert (heavier.length, heavier.cuts, heavier.largest) == (4, (0, 4, 5, 6), 4.0)
    # six are active, of which a half would take 4
    assert pipeline_for(sizes, 2, 4, start.largest).length == 4
    assert pipeline_for(sizes, 8, 4, start.largest).cuts == (0,)
    assert initial_pipeline(sizes, 3).micro_batches == 12
    assert initial_pipeline(sizes, 4, micro_batches_per_stage={4: 6}).micro_batches == 24


def test_a_pipeline_longer_than_what_is_active_is_halved_until_it_is_not() -> None:
    assert pipeline_for([1.0] * 8, 6, 4, 0.1).length == 2
    with pytest.raises(ValueError, match="length=3: 2 sub-layers are active"):
        pipeline_for([1.0] * 8, 6, 3, 1.0)
    with pytest.raises(ValueError, match="frozen=9") as found:
        pipeline_for([1.0] * 8, 9, 0, 0.0)
    assert "length=0" in str(found.value) and "largest_at_start=0.0" in str(found.value)
    with pytest.raises(ValueError, match="there are 2 sub-layers"):
        initial_pipeline([1.0, 1.0], 4)
