"""Keys and values that are given step by step make the same model as the whole text at once."""

from __future__ import annotations

import math

import pytest
import torch

from testbed.worker.methods.kv_transfer.model.transformer import (
    AttentionRequest,
    DenseCache,
    KVTransformer,
    Shape,
    attention,
    rotated,
)

SHAPE = Shape(layers=3, heads=2, head_width=8)


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


def _text(length: int) -> torch.Tensor:
    return torch.randint(256, (length,), generator=torch.Generator().manual_seed(3))


@pytest.mark.parametrize("prefill", [0, 1, 17])
def test_steps_with_a_dense_cache_equal_the_whole_text_at_once(prefill: int) -> None:
    model, text = KVTransformer(SHAPE, seed=1), _text(24)
    with torch.no_grad():
        expected = model(text[None])[0]
    cache = DenseCache(model.prefill(text[:prefill]) if prefill else None)
    for position in range(prefill, len(text)):
        before = int(text[position - 1]) if position else 0
        found = model.step(int(text[position]), before, position, cache)
        torch.testing.assert_close(found, expected[position], rtol=1e-5, atol=1e-5)
    prefilled = model.prefill(text)
    torch.testing.assert_close(prefilled.logits, expected)
    torch.testing.assert_close(torch.stack(cache.keys), prefilled.keys)
    torch.testing.assert_close(torch.stack(cache.values), prefilled.values)


def test_no_position_sees_a_later_one_but_each_its_own_and_those_before() -> None:
    model, text = KVTransformer(SHAPE, seed=1), _text(12)[None]
    other = text.clone()
    other[0, 7] = (other[0, 7] + 1) % 256
    with torch.no_grad():
        changed = (model(text) - model(other)).abs().amax(dim=-1)[0] > 0
    assert changed.tolist() == [False] * 7 + [True] * 5


def test_a_rotation_keeps_distances_in_scores_and_is_undone_by_its_opposite() -> None:
    query, key = torch.randn(2, 1, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    scores = [
        float(rotated(query, torch.tensor([at + 5]), 100.0) @ rotated(key, torch.tensor([at]), 100.0).T)
        for at in (0, 3, 40)
    ]
    assert scores == pytest.approx([scores[0]] * 3) and scores[0] != pytest.approx(float(query @ key.T))
    at = torch.tensor([9])
    torch.testing.assert_close(rotated(rotated(key, at, 100.0), -at, 100.0), key)
    turned = rotated(torch.tensor([[1.0, 0.0, 0.0, 0.0]]), torch.tensor([2]), 100.0)
    torch.testing.assert_close(turned, torch.tensor([[math.cos(2), 0.0, math.sin(2), 0.0]]))


def test_attention_of_a_head_by_hand() -> None:
    keys, values = (
        torch.tensor([[2 * math.log(3), 0.0, 0, 0], [0.0, 7, 0, 0]]),
        torch.tensor([[1.0, 0, 0, 0], [5.0] * 4]),
    )
    output, weights = attention(torch.tensor([1.0, 0, 0, 0]), keys, values)
    torch.testing.assert_close(weights, torch.tensor([0.75, 0.25]))
    torch.testing.assert_close(output, torch.tensor([2.0, 1.25, 1.25, 1.25]))


def test_a_speculated_query_is_the_layers_own_where_the_input_is() -> None:
    model, asked = KVTransformer(SHAPE, seed=1), list[AttentionRequest]()
    cache = DenseCache()

    def attend(of_layer: AttentionRequest) -> torch.Tensor:
        asked.append(of_layer)
        return cache(of_layer)

    model.step(65, 0, 11, attend)
    for one in asked:
        torch.testing.assert_close(model.speculated_query(one.layer, one.hidden, one.position), one.query)
    early = model.speculated_query(2, asked[1].hidden, 11)
    assert torch.cosine_similarity(early, asked[2].query).min() > 0.5
    assert not torch.allclose(early, asked[2].query)


def test_all_wrong_sizes_are_told_at_once() -> None:
    with pytest.raises(ValueError, match=r"layers=0.*\n.*head_width=7.*\n.*rotary_base=1"):
        Shape(layers=0, head_width=7, rotary_base=1)
