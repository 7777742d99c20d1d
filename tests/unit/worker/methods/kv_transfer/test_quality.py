"""Needles in a haystack, a small model that finds them, and how near each way of fetching comes to exact attention."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import pytest
import torch
from torch import Tensor

from testbed.worker.methods.kv_transfer.cache.kv_codecs import CacheGen, Floats, Uniform
from testbed.worker.methods.kv_transfer.cache.store import Coding
from testbed.worker.methods.kv_transfer.model.needle import FIRST_KEY, FIRST_VALUE, Needles, Stage, Task, losses, train
from testbed.worker.methods.kv_transfer.model.transformer import AttentionRequest, KVTransformer, Shape
from testbed.worker.methods.kv_transfer.quality import Decoder, Report, compare, likeness
from testbed.worker.methods.kv_transfer.selection.low_dimension import InfiniGen, Loki
from testbed.worker.methods.kv_transfer.selection.selector import Attended, Selector
from testbed.worker.methods.kv_transfer.selection.shadowkv import ShadowKV
from testbed.worker.methods.kv_transfer.selection.sparse_attention import Dense, Quest, RecentWindow, SparQ

SHAPE = Shape(layers=2, heads=1, head_width=32)
NEAR = {"recent": 4, "sinks": 2}
CORPUS = torch.randint(32, 127, (5000,), generator=torch.Generator().manual_seed(0), dtype=torch.uint8)
TASK = Task(length=64, needles=8, questions=8)
EXACT = Coding(Floats(bits=32), Floats(bits=32))


@pytest.fixture(scope="module")
def model() -> KVTransformer:
    torch.set_num_threads(1)
    model = KVTransformer(SHAPE, seed=0)
    for _ in train(model, CORPUS, [Stage(task=TASK, samples=16, steps=400, learning_rate=0.004)], text_weight=0.0):
        pass
    return model


def _needles(samples: int, task: Task = TASK, seed: int = 9) -> tuple[Tensor, Tensor]:
    needles = task.draw(samples, CORPUS, torch.Generator().manual_seed(seed))
    return needles.text, needles.asked_at


@torch.no_grad()
def _accuracy(model: KVTransformer, batch: Needles) -> float:
    """Share of answers that have the highest logit, all bytes before them given."""
    found = model(batch.text).argmax(-1).gather(1, batch.asked_at)
    return float((found == batch.answers).float().mean())


def _recall(model: KVTransformer, text: Tensor, asked_at: Tensor, make: Callable[[], Selector]) -> float:
    """Share of right answers: the haystack is prefilled, questions and answers are decoded, the latter as given."""
    decoder, right = Decoder(model, model.prefill(text[: int(asked_at[0])]), make), 0
    for position in range(int(asked_at[0]), int(asked_at[-1]) + 1):
        logits = decoder.step(int(text[position]), int(text[position - 1]), position)
        right += position in asked_at and int(logits.argmax()) == int(text[position + 1])
    return right / len(asked_at)


def test_needles_lie_whole_in_the_text_and_questions_ask_for_some_of_them() -> None:
    task = Task(length=40, needles=6, questions=4)
    needles = task.draw(50, CORPUS, torch.Generator().manual_seed(1))
    for text, asked_at, answers in zip(needles.text, needles.asked_at, needles.answers, strict=True):
        hay = text[: task.haystack].tolist()
        planted = {hay[at]: hay[at + 1] for at in range(task.haystack) if FIRST_KEY <= hay[at] < FIRST_VALUE}
        assert len(planted) == 6 and all(value >= FIRST_VALUE for value in planted.values())
        assert sum(byte >= FIRST_KEY for byte in hay) == 12
        assert asked_at.tolist() == [32, 34, 36, 38]
        assert [planted[key] for key in text[asked_at].tolist()] == answers.tolist()
    places = (needles.text[:, :32] < FIRST_KEY).float().mean(dim=0)
    assert places.max() < 1 and len(set(needles.text[:, 32].tolist())) > 20
    again = task.draw(50, CORPUS, torch.Generator().manual_seed(1))
    assert torch.equal(again.text, needles.text)


def test_other_bytes_than_ascii_become_spaces() -> None:
    corpus = torch.full((50,), 200, dtype=torch.uint8)
    text = Task(length=20).draw(1, corpus, torch.Generator().manual_seed(0)).text[0]
    assert text[:18].tolist().count(ord(" ")) == 16


def test_a_haystack_that_is_too_short_is_refused() -> None:
    with pytest.raises(ValueError, match="length=19: 6 needles and 4 questions take at least 20"):
        Task(length=19, needles=6, questions=4)
    with pytest.raises(ValueError, match=r"length=2: .*\nneedles=65: "):
        Task(length=2, needles=65, questions=1)
    with pytest.raises(ValueError, match="questions=2"):
        Task(length=20, needles=1, questions=2)


@pytest.mark.tier("all")
def test_an_untrained_model_knows_nothing_and_training_teaches_it(model: KVTransformer) -> None:
    needles = TASK.draw(64, CORPUS, torch.Generator().manual_seed(9))
    untrained = KVTransformer(SHAPE, seed=0)
    assert _accuracy(untrained, needles) < 0.1 and _accuracy(model, needles) > 0.95
    answers, text = losses(untrained, needles)
    assert float(answers.detach()) == pytest.approx(math.log(256), rel=0.25)
    assert float(text.detach()) == pytest.approx(math.log(256), rel=0.25)


def test_training_goes_the_same_way_twice() -> None:
    stage = Stage(task=TASK, samples=2, steps=3, learning_rate=0.01)
    courses = [list(train(KVTransformer(SHAPE, seed=0), CORPUS, [stage], seed=4)) for _ in range(2)]
    assert courses[0] == courses[1] and len(courses[0]) == 3 and courses[0][2] != courses[0][0]


def test_figures_of_one_layer_by_hand() -> None:
    """Two heads: weights 1/2, 1/4, 1/4 each; the first head's last two positions were left out."""
    keys = torch.tensor([[[math.log(2.0)], [0], [0]]] * 2)
    values = torch.tensor([[[2.0], [4.0], [8.0]]] * 2)
    asked = AttentionRequest(0, 2, torch.zeros(2), torch.ones(2, 1), keys[:, 2], values[:, 2])
    everything = torch.arange(3)
    found = likeness(asked, keys, values, Attended(torch.tensor([[2.0], [4.0]]), [torch.tensor([0]), everything]))
    assert found == pytest.approx((0.25, 1.0, 0.75, 1.0))
    worst = likeness(asked, keys, values, Attended(torch.tensor([[-4.0], [4.0]]), [torch.tensor([2]), everything]))
    assert worst == pytest.approx((1.0, 0.0, 0.625, 0.5))


def test_figures_of_a_report_by_hand() -> None:
    report = Report(kl_nats=[1.0, 0.5], matches=[True, False])
    assert (report.mean_kl_nats, report.token_match) == (0.75, 0.5)


def test_everything_is_exact_by_every_figure_and_the_window_is_not(model: KVTransformer) -> None:
    text, asked_at = _needles(1)
    reports = {
        name: compare(model, text[0], int(asked_at[0, 0]), make)
        for name, make in {
            "dense": partial(Dense, **NEAR, coding=EXACT),
            "window": partial(RecentWindow, **NEAR, block=4, coding=EXACT),
        }.items()
    }
    dense, window = reports["dense"], reports["window"]
    assert dense.token_match == 1.0 and dense.mean_kl_nats == pytest.approx(0, abs=1e-6)
    assert (dense.mean("mass_recall"), dense.mean("overlap")) == pytest.approx((1, 1))
    assert dense.mean("relative_error") < 1e-5
    assert len(dense.kl_nats) == 16 and len(dense.likenesses) == 32
    assert window.mean("mass_recall") < 0.9 and window.mean("relative_error") > 0.1
    assert window.mean_kl_nats > 0.1 and window.token_match < 0.8
    at = int(asked_at[0, 0])
    near = Decoder(model, model.prefill(text[0, :at]), partial(RecentWindow, **NEAR, block=4, coding=EXACT))
    logits = near.step(int(text[0, at]), int(text[0, at - 1]), at)
    exact, found = (some.softmax(dim=0) for some in (model.prefill(text[0, : at + 1]).logits[-1], logits))
    assert window.kl_nats[0] == pytest.approx(float((exact * (exact / found).log()).sum()), rel=1e-3)
    assert window.traffic.round_trips == 0 and dense.traffic.round_trips > 0


def test_needles_are_found_by_selection_and_lost_in_a_window(model: KVTransformer) -> None:
    """Each fetches some 8 of 40 positions."""
    makes = {
        "dense": partial(Dense, **NEAR, block=4),
        "window": partial(RecentWindow, **NEAR, block=4),
        "sparq": partial(SparQ, components=12, budget=8, **NEAR, block=4),
        "quest": partial(Quest, page=2, budget=4, **NEAR),
        "loki": partial(Loki, rank=12, budget=8, **NEAR, block=4),
        "infinigen": partial(InfiniGen, speculate=model.speculated_query, rank=12, budget=8, **NEAR, block=4),
        "shadow": partial(ShadowKV, rotary_base=SHAPE.rotary_base, rank=32, chunk=2, budget=4, outliers=0, **NEAR),
        "dense_int8": partial(Dense, **NEAR, block=4, coding=Coding(Uniform(bits=8))),
        "dense_cachegen": partial(Dense, **NEAR, block=4, coding=Coding(CacheGen(step=0.25))),
    }
    texts, asked_at = _needles(3)
    recall = {
        name: sum(_recall(model, *one, make) for one in zip(texts, asked_at, strict=True)) / 3
        for name, make in makes.items()
    }
    assert recall.pop("window") < 0.4
    assert recall.pop("dense") > 0.9
    assert min(recall.values()) > 0.8


def test_a_decoder_counts_what_the_set_up_takes(model: KVTransformer) -> None:
    prefilled = model.prefill(_needles(1)[0][0][:40])

    def near_and_set_up(make: partial[Selector]) -> tuple[int, int]:
        decoder = Decoder(model, prefilled, make)
        return decoder.selector.near_bytes(), decoder.set_up_bytes

    dense, loki = (near_and_set_up(make) for make in (partial(Dense, **NEAR), partial(Loki, rank=8, **NEAR)))
    assert dense[0] < dense[1] < dense[0] + 300 and loki[0] < loki[1] < loki[0] + 400
    # two layers: 32 x 8 directions and 32 positions of 8 numbers, of 2 bytes
    assert loki[0] - dense[0] == 2 * 2 * (32 * 8 + 32 * 8)
