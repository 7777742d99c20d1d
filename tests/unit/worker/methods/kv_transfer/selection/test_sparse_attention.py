"""Ways of fetching keys and values: with enough of a budget all are exact attention, with less each is what it says."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from compressors.base.payload import PayloadError
from testbed.worker.methods.kv_transfer.cache.kv_codecs import Floats, Uniform
from testbed.worker.methods.kv_transfer.cache.store import Coding, KVStore, LocalLink
from testbed.worker.methods.kv_transfer.model.transformer import AttentionRequest, DenseCache, KVTransformer, Shape
from testbed.worker.methods.kv_transfer.quality import Decoder
from testbed.worker.methods.kv_transfer.selection.low_dimension import InfiniGen, Loki, main_directions
from testbed.worker.methods.kv_transfer.selection.selector import Selector, highest
from testbed.worker.methods.kv_transfer.selection.shadowkv import ShadowKV
from testbed.worker.methods.kv_transfer.selection.sparse_attention import (
    Dense,
    Quest,
    RecentWindow,
    SparQ,
    page_bounds,
    temperature,
)

SHAPE = Shape(layers=3, heads=2, head_width=8)
MODEL = KVTransformer(SHAPE, seed=1)
EXACT = Coding(Floats(bits=32), Floats(bits=32))
TEXT = torch.randint(256, (64,), generator=torch.Generator().manual_seed(3))
PREFILL = 40
RECENT, SINKS, BLOCK = 6, 3, 4
NEAR = {"recent": RECENT, "sinks": SINKS}


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


Make = Callable[[], Selector]


def _infinigen(reach: str, budget: int = 99, alpha: float = 1e6, rank: int = 3) -> InfiniGen:
    return InfiniGen(
        speculate=MODEL.speculated_query,
        rank=rank,
        alpha=alpha,
        budget=budget,
        reach=reach,
        recent=RECENT,
        sinks=SINKS,
        block=BLOCK,
        coding=EXACT,
    )


def _shadow(budget: int = 99, rank: int = 16, outliers: int = 2) -> ShadowKV:
    base = SHAPE.rotary_base
    return ShadowKV(rotary_base=base, rank=rank, chunk=4, budget=budget, outliers=outliers, **NEAR, coding=EXACT)


EVERYTHING: dict[str, Make] = {
    "dense": lambda: Dense(**NEAR, block=BLOCK, coding=EXACT),
    "window": lambda: RecentWindow(recent=99, sinks=SINKS, block=BLOCK, coding=EXACT),
    "sparq": lambda: SparQ(components=2, budget=99, **NEAR, block=BLOCK, coding=EXACT),
    "quest": lambda: Quest(page=BLOCK, budget=99, **NEAR, coding=EXACT),
    "loki": lambda: Loki(rank=2, budget=99, **NEAR, block=BLOCK, coding=EXACT),
    "infinigen": lambda: _infinigen("next"),
    "infinigen_all": lambda: _infinigen("all"),
    "shadow": _shadow,
}
SOME: dict[str, Make] = {
    "sparq": lambda: SparQ(components=2, budget=5, **NEAR, block=BLOCK, coding=EXACT),
    "quest": lambda: Quest(page=BLOCK, budget=2, **NEAR, coding=EXACT),
    "loki": lambda: Loki(rank=2, budget=5, **NEAR, block=BLOCK, coding=EXACT),
    "infinigen": lambda: _infinigen("next", budget=5),
    "infinigen_all": lambda: _infinigen("all", budget=5),
    "shadow": lambda: _shadow(budget=2, outliers=1),
}
MAX_FETCHED = {"quest": 2 * BLOCK, "shadow": 3 * BLOCK}


def _asked(position: int, layer: int = 0, seed: int = 5) -> AttentionRequest:
    query, key, value = torch.randn(3, SHAPE.heads, SHAPE.head_width, generator=torch.Generator().manual_seed(seed))
    return AttentionRequest(layer, position, torch.zeros(SHAPE.width), query, key, value)


def _started(selector: Selector, length: int = PREFILL) -> tuple[Selector, LocalLink]:
    prefilled = MODEL.prefill(TEXT[:length])
    link = LocalLink(KVStore(prefilled.keys, prefilled.values, selector.coding))
    selector.start(selector.set_up(link.store))
    return selector, link


def _keys(length: int = PREFILL) -> Tensor:
    return MODEL.prefill(TEXT[:length]).keys[0]


@pytest.mark.parametrize("prefill", [1, 5, PREFILL])
@pytest.mark.parametrize("name", EVERYTHING)
def test_a_budget_of_everything_is_exact_attention(name: str, prefill: int) -> None:
    prefilled = MODEL.prefill(TEXT[:prefill])
    dense, decoder = DenseCache(prefilled), Decoder(MODEL, prefilled, EVERYTHING[name])
    for position in range(prefill, len(TEXT)):
        step = int(TEXT[position]), int(TEXT[position - 1]), position
        torch.testing.assert_close(decoder.step(*step), MODEL.step(*step, dense), rtol=1e-4, atol=1e-4)
    keys = torch.stack([decoder.link.store.held(layer, "keys") for layer in range(SHAPE.layers)])
    # what left the window has arrived, once
    assert name == "window" or keys.shape[2] >= len(TEXT) - RECENT - BLOCK
    torch.testing.assert_close(keys, torch.stack(dense.keys)[:, :, : keys.shape[2]])


@pytest.mark.parametrize("name", SOME)
def test_less_of_a_budget_attends_to_no_more_and_always_to_sinks_and_window(name: str) -> None:
    decoder = Decoder(MODEL, MODEL.prefill(TEXT[:PREFILL]), SOME[name])
    for position in range(PREFILL, len(TEXT)):
        attended = []

        def attend(asked: AttentionRequest) -> Tensor:
            attended.append(decoder.attend(asked))  # noqa: B023 - called at once
            return attended[-1].output  # noqa: B023

        MODEL.step(int(TEXT[position]), int(TEXT[position - 1]), position, attend)
        for layer in attended:
            for positions in layer.positions:
                found = positions.tolist()
                assert found == sorted(set(found))
                assert set(found) >= {*range(SINKS), *range(position - RECENT + 1, position + 1)}
                assert len(found) <= SINKS + RECENT + BLOCK + MAX_FETCHED.get(name, 5)
                assert len(found) > SINKS + RECENT


@pytest.mark.parametrize(
    ("name", "round_trips", "ahead"),
    [
        ("dense", 1, 2),
        ("window", 0, 0),
        ("sparq", 6, 0),
        ("quest", 3, 0),
        ("loki", 3, 0),
        ("infinigen", 1, 2),
        ("infinigen_all", 1, 0),
        ("shadow", 3, 0),
    ],
)
def test_round_trips_of_a_step_of_three_layers(name: str, round_trips: int, ahead: int) -> None:
    decoder = Decoder(MODEL, MODEL.prefill(TEXT[:PREFILL]), EVERYTHING[name])
    decoder.step(int(TEXT[PREFILL]), int(TEXT[PREFILL - 1]), PREFILL)
    traffic = decoder.link.traffic
    assert (traffic.round_trips, traffic.round_trips_ahead) == (round_trips, ahead)


def test_everything_is_asked_for_a_step_early_with_the_same_bytes_and_outputs() -> None:
    prefilled, steps = MODEL.prefill(TEXT[:PREFILL]), range(PREFILL, PREFILL + RECENT + 2 * BLOCK)
    early = Decoder(MODEL, prefilled, EVERYTHING["dense"], steps[-1])
    alone = Decoder(MODEL, prefilled, EVERYTHING["dense"])  # a step at a time
    for position in steps:
        byte, before = int(TEXT[position]), int(TEXT[position - 1])
        assert torch.equal(early.step(byte, before, position), alone.step(byte, before, position))
        trips = [one.link.traffic.round_trips + one.link.traffic.round_trips_ahead for one in (early, alone)]
        under_way = SHAPE.layers if position < steps[-1] else 0
        assert trips[0] - trips[1] == under_way, "questions of the next step, if there is one"
    assert (early.link.traffic.round_trips, alone.link.traffic.round_trips) == (1, len(steps))
    for name in ("asked_bytes", "answered_bytes", "told_bytes"):
        assert getattr(early.link.traffic, name) == getattr(alone.link.traffic, name) > 0


def test_bytes_of_a_step_by_hand() -> None:
    """36 positions are far, 40 - 4, and all numbers are float16: a row of a head has 16 bytes."""
    head, number, size = 10, 5, 4
    expected = {
        # headers of all three layers; of the first, a blob of keys and one of values for each of two heads
        "dense": (SHAPE.layers * head, 2 * 2 * (size + 36 * 16)),
        # components 2 of 8: one byte of bits; then 5 positions of 36: five bytes of bits
        "sparq": (head + 2 * (number + 1) + head + 2 * (number + 5), 2 * (size + 36 * 4) + 2 * 2 * (size + 5 * 16)),
        # 2 of 9 pages: two bytes of bits
        "quest": (head + 2 * (number + 2), 2 * 2 * (size + 8 * 16)),
        "shadow": (head + 2 * (number + 2), 2 * (size + 8 * 16)),
    }
    near = {"recent": 4, "sinks": 3}
    made: dict[str, Selector] = {
        "dense": Dense(**near, block=4),
        "sparq": SparQ(components=2, budget=5, **near, block=4),
        "quest": Quest(page=4, budget=2, **near),
        "shadow": ShadowKV(rotary_base=SHAPE.rotary_base, chunk=4, budget=2, **near),
    }
    for name, selector in made.items():
        _, link = _started(selector)
        selector.attend(_asked(PREFILL), link)
        assert (link.traffic.asked_bytes, link.traffic.answered_bytes) == expected[name], name


def test_what_is_near_by_hand_and_what_leaves_it() -> None:
    selector, link = _started(Quest(page=4, budget=2, recent=4, sinks=3))
    ends = 2 * 2 * (4 + 3) * 8  # keys and values of two heads, window and sinks
    assert selector.near_bytes() == 2 * 3 * (ends + 2 * 2 * 9 * 8)
    for position in range(PREFILL, PREFILL + 8):
        selector.attend(_asked(position, seed=position), link)
    # layer 0 alone went on: the first block that left was of the prefill and is there, the next is told
    assert [near.far_length for near in selector.near] == [44, 36, 36]
    assert link.traffic.told_bytes == 10 + 4 * (4 + 4 * 16)
    assert selector.near_bytes() == 2 * 3 * (ends + 2 * 2 * 9 * 8) + 2 * 2 * 2 * 2 * 8


def test_bounds_of_pages_are_upper_bounds_also_after_rounding() -> None:
    keys, query = torch.randn(2, 48, 8), torch.randn(2, 8)
    for coding in (Coding(), EXACT):
        link = LocalLink(KVStore(keys[None] * 37, keys[None], coding))
        selector = Quest(page=8, budget=2, recent=8, sinks=0, coding=coding)
        selector.start(selector.set_up(link.store))
        scores = (keys * 37 @ query[..., None])[..., 0][:, :40].unflatten(1, (5, 8)).amax(dim=2)
        bounds = selector.bounds(0, query)
        assert bounds.shape == (2, 5) and (bounds >= scores - 1e-4).all()
        assert (bounds <= scores.abs() + 37 * 8 * keys.abs().max() * query.abs().max()).all()


def test_a_bound_by_hand() -> None:
    least, greatest = page_bounds(torch.tensor([[[-1.0, 0.0], [2.0, 1.0], [5.0, 5.0], [6.0, 0.3]]]), page=2)
    assert least[0].tolist() == [[-1, 0], [5, pytest.approx(0.3, rel=1e-3)]]
    assert least[0, 1, 1] <= torch.tensor(0.3)  # the nearest float16 is above
    assert greatest.tolist() == [[[2, 1], [6, 5]]]
    selector = Quest(page=2, budget=1)
    selector.keep(0, [least, greatest])
    # max(-1, 2) + max(0, -1), max(5, 6) - least
    assert selector.bounds(0, torch.tensor([[1.0, -1.0]])).tolist() == [[2, pytest.approx(5.7, rel=1e-3)]]


@pytest.mark.parametrize(
    "make",
    [
        lambda: SparQ(components=8, budget=5, **NEAR, block=BLOCK, coding=EXACT),
        lambda: Loki(rank=8, budget=5, **NEAR, block=BLOCK, coding=EXACT),
        lambda: _infinigen("next", budget=5, rank=8),
    ],
)
def test_all_components_find_the_exact_best(make: Make) -> None:
    selector, link = _started(make())
    asked = _asked(PREFILL)
    attended = selector.attend(asked, link)
    near = {*range(SINKS), *range(32, PREFILL + 1)}
    for head, positions in enumerate(attended.positions):
        best = highest((_keys()[head] @ asked.query[head])[SINKS:32], 5, SINKS)
        assert set(positions.tolist()) - near == set(best.tolist())


def test_sparq_by_hand() -> None:
    """One head of two dimensions; q = (3, 1), so the first component stands for both, at sqrt(2 * 3/4)."""
    keys = torch.tensor([[1.0, -1], [0, 9], [0.5, 0], [0, 0]])
    values = torch.tensor([[4.0, 0], [0, 8], [0, 0], [2, 2]])
    coding = EXACT
    link = LocalLink(KVStore(keys[None, None], values[None, None], coding))
    query = torch.tensor([[3.0, 1.0]])
    new = torch.tensor([[0.0, 0.0]])
    asked = AttentionRequest(0, 4, torch.zeros(2), query, new, new)
    assert temperature(query[0], torch.tensor([0])) == pytest.approx(math.sqrt(1.5))
    selector = SparQ(components=1, budget=1, recent=1, sinks=0, block=3, coding=coding)
    selector.start(selector.set_up(link.store))
    found = selector.attend(asked, link)
    assert found.positions[0].tolist() == [0, 3, 4]
    rough = torch.softmax(torch.tensor([3.0, 0, 1.5, 0, 0]) / math.sqrt(1.5), dim=0)
    exact = torch.softmax(torch.tensor([2.0, 0, 0]) / math.sqrt(2), dim=0)
    share = rough[[0, 3, 4]].sum()
    attended = exact[0] * values[0] + exact[1] * values[3]
    expected = share * attended + (1 - share) * values.sum(dim=0) / 5
    torch.testing.assert_close(found.output[0], expected)


def test_the_mean_value_goes_on_with_what_leaves_the_window() -> None:
    selector, link = _started(SparQ(**NEAR, block=BLOCK, coding=EXACT))
    for position in range(PREFILL, PREFILL + 9):
        selector.attend(_asked(position, seed=position), link)
    far = selector.near[0].far_length
    assert far == 40 and link.store.held(0, "values").shape[1] == 40
    torch.testing.assert_close(selector.kept(0)[0], link.store.held(0, "values").mean(dim=1))


def test_a_query_of_zeros_has_a_temperature() -> None:
    assert temperature(torch.zeros(4), torch.tensor([1])) == 2.0


def test_main_directions_are_orthonormal_and_hold_what_varies() -> None:
    rows = torch.randn(50, 4) @ torch.diag(torch.tensor([0.1, 9.0, 1.0, 0.01])) + torch.tensor([0, 0, 0, 50.0])
    about_mean, about_zero = (main_directions(rows, 2, centred=centred) for centred in (True, False))
    torch.testing.assert_close(about_mean.T @ about_mean, torch.eye(2), atol=1e-6, rtol=0)
    assert about_mean.abs().argmax(dim=0).tolist() == [1, 2] and about_zero.abs().argmax(dim=0).tolist() == [3, 1]
    assert main_directions(torch.zeros(2, 0, 4), 9, centred=True).shape == (2, 4, 4)


def test_infinigen_wants_what_scores_at_most_alpha_below_the_highest() -> None:
    narrow, wide = (_infinigen("next", alpha=alpha, rank=8) for alpha in (0.5, 3.0))
    asked, found = _asked(PREFILL), []
    for selector in (narrow, wide):
        _, link = _started(selector)
        positions = selector.attend(asked, link).positions[0]
        found.append(set(positions.tolist()) - {*range(SINKS), *range(32, PREFILL + 1)})
    scores = (_keys()[0] @ asked.query[0] / math.sqrt(8))[SINKS:32]
    for alpha, some in zip((0.5, 3.0), found, strict=True):
        assert some == {SINKS + int(at) for at in torch.nonzero(scores >= scores.max() - alpha)}
    assert 0 < len(found[0]) < len(found[1])


@pytest.mark.parametrize("reach", ["next", "all"])
def test_infinigen_asks_for_other_layers_by_the_query_that_is_speculated(reach: str) -> None:
    guesses = {layer: _asked(0, seed=50 + layer).query for layer in range(SHAPE.layers)}
    told = []

    def speculate(layer: int, hidden: Tensor, position: int) -> Tensor:
        told.append((layer, int(hidden[0]), position))
        return guesses[layer]

    selector, link = _started(
        InfiniGen(speculate=speculate, rank=8, alpha=1e6, budget=5, reach=reach, **NEAR, block=BLOCK, coding=EXACT)
    )
    keys = MODEL.prefill(TEXT[:PREFILL]).keys
    for layer in range(SHAPE.layers):
        asked = _asked(PREFILL, layer)._replace(hidden=torch.full((SHAPE.width,), float(layer)))
        query = guesses[layer] if layer else asked.query
        for head, positions in enumerate(selector.attend(asked, link).positions):
            best = highest((keys[layer, head] @ query[head])[SINKS:32], 5, SINKS)
            assert set(positions.tolist()) == {*range(SINKS), *range(32, PREFILL + 1), *best.tolist()}
    assert told == [(1, 0, PREFILL), (2, 1 if reach == "next" else 0, PREFILL)]


def test_shadow_keeps_odd_chunks_whole_and_fetches_no_keys() -> None:
    keys = torch.ones(1, 1, 20, 4) + 0.1 * torch.randn(1, 1, 20, 4, generator=torch.Generator().manual_seed(0))
    keys[0, 0, 9] = -8.0
    link = LocalLink(KVStore(keys, keys, EXACT))
    selector = ShadowKV(rotary_base=1e4, rank=4, chunk=4, budget=1, outliers=1, recent=4, sinks=0, coding=EXACT)
    selector.start(selector.set_up(link.store))
    found = selector.attend(AttentionRequest(0, 20, torch.zeros(4), *torch.ones(3, 1, 4)), link).positions[0].tolist()
    assert set(found) >= {8, 9, 10, 11} and len(found) == 4 + 4 + 5


def test_coarser_rows_are_fewer_bytes_and_come_back_near_enough() -> None:
    outputs, sizes = [], []
    for rows in (Floats(bits=32), Floats(), Uniform(bits=8), Uniform(bits=4)):
        selector, link = _started(Dense(**NEAR, block=BLOCK, coding=Coding(rows, Floats(bits=32))))
        outputs.append(selector.attend(_asked(PREFILL), link).output)
        sizes.append(link.traffic.answered_bytes)
    errors = [float((output - outputs[0]).norm() / outputs[0].norm()) for output in outputs]
    assert sizes == sorted(sizes, reverse=True) and errors == sorted(errors)
    assert 0 < errors[1] < 1e-3 < errors[3] < 0.2


def test_a_set_up_of_another_method_or_a_damaged_one_is_refused() -> None:
    store = _started(Dense())[1].store
    message = Quest().set_up(store)
    for damaged in (message, message[:20], b""):
        with pytest.raises(PayloadError, match="KV"):
            Dense().start(damaged)


def test_wrong_parameters_are_told_together() -> None:
    with pytest.raises(ValueError, match=r"components=0.*\nbudget=0.*\nrecent=0.*\nsinks=-1.*\nblock=0"):
        SparQ(components=0, budget=0, recent=0, sinks=-1, block=0)
    with pytest.raises(ValueError, match=r"sinks=9: .*at most 8"):
        Dense(recent=8, sinks=9)
    with pytest.raises(ValueError, match=r"rank=0.*\n.*alpha=0.*\n.*budget=0.*\n.*reach=far"):
        InfiniGen(speculate=MODEL.speculated_query, rank=0, alpha=0, budget=0, reach="far")
    with pytest.raises(ValueError, match=r"rotary_base=1.*\n.*rank=0.*\n.*outliers=-1"):
        ShadowKV(rotary_base=1, rank=0, outliers=-1)
