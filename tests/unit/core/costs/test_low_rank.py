"""What factorising saves, which layers it leaves alone, and the published sizes of Pufferfish's models."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from testbed.core.costs.low_rank import (
    LowRankPlan,
    WeightLayer,
    make_plan,
    ratio_rank,
    re_warm_up,
    standing,
)

# The authors' models for 32 x 32 pixels and 10 classes. Counted is what learns: weights of convolutions, which have no
# bias, two vectors of batch normalisation after each, linear maps with bias. Extra normalisation is not.


def _resnet18() -> Iterator[WeightLayer]:
    """Of four stages of two blocks of two convolutions."""
    yield WeightLayer("stem", 64, 3, (3, 3))
    inputs = 64
    for stage, width in enumerate((64, 128, 256, 512)):
        for block in range(2):
            yield WeightLayer(f"{stage}.{block}.conv1", width, inputs, (3, 3))
            yield WeightLayer(f"{stage}.{block}.conv2", width, width, (3, 3))
            if inputs != width:
                yield WeightLayer(f"{stage}.{block}.shortcut", width, inputs, (1, 1))
            inputs = width
    yield WeightLayer("classifier", 10, inputs)


def _vgg19() -> Iterator[WeightLayer]:
    """Of sixteen convolutions and three linear maps."""
    inputs = 3
    for stage, (count, width) in enumerate(((2, 64), (2, 128), (4, 256), (4, 512), (4, 512))):
        for index in range(count):
            yield WeightLayer(f"{stage}.{index}", width, inputs, (3, 3))
            inputs = width
    yield from (WeightLayer("fc1", 512, 512), WeightLayer("fc2", 512, 512), WeightLayer("fc3", 10, 512))


def _parameters(layers: list[WeightLayer]) -> int:
    vectors = sum((2 if layer.kernel else 1) * layer.outputs for layer in layers)
    return vectors + sum(layer.elements for layer in layers)


def _saved(plan: LowRankPlan) -> int:
    """So many parameters fewer has the model; without what an extra norm adds."""
    of = {layer.name: layer for layer in plan.layers}
    return sum(of[name].elements - of[name].factor_elements(rank) for name, rank in plan.ranks.items())


def _quarter(layers: list[WeightLayer], keep_first: int) -> LowRankPlan:
    return make_plan(layers, keep_first, lambda layer: ratio_rank(layer, 0.25))


def test_resnet18_shrinks_as_published() -> None:
    layers = list(_resnet18())
    before = _parameters(layers)
    plan = _quarter(layers, 3)  # the stem and the first block
    assert before == 11_173_962
    assert before - _saved(plan) == 3_336_266
    assert before / (before - _saved(plan)) == pytest.approx(3.35, abs=0.005)
    shortcuts = {f"{stage}.0.shortcut" for stage in (1, 2, 3)}
    assert set(plan.kept) == {"stem", "0.0.conv1", "0.0.conv2", "classifier"} | shortcuts
    assert plan.ranks["1.0.conv1"] == 32  # of 128 outputs, not of 64 inputs
    # the norms between factors, two vectors of the rank each, would add less than a thousandth
    assert sum(2 * rank for rank in plan.ranks.values()) == 1856


def test_vgg19_shrinks_as_published() -> None:
    layers = list(_vgg19())
    before = _parameters(layers)
    plan = _quarter(layers, 9)
    assert before == 20_560_330
    assert before - _saved(plan) == 8_370_634
    assert before / (before - _saved(plan)) == pytest.approx(2.46, abs=0.005)
    assert {"fc1", "fc2"} <= set(plan.ranks) and "fc3" in plan.kept
    assert set(plan.ranks.values()) == {128}


def test_a_square_linear_map_halves_and_a_convolution_of_nine_places_shrinks_more() -> None:
    linear, conv = WeightLayer("linear", 512, 512), WeightLayer("conv", 512, 512, (3, 3))
    assert linear.elements / linear.factor_elements(128) == 2.0
    assert conv.elements / conv.factor_elements(128) == pytest.approx(3.6)
    assert conv.factor_elements(128) == 128 * 512 * 9 + 512 * 128
    assert WeightLayer("uneven", 64, 32, (1, 5)).elements == 64 * 32 * 5


def test_from_the_break_even_rank_on_a_layer_stays_full() -> None:
    layer, last = WeightLayer("one", 60, 30), WeightLayer("last", 10, 60)
    assert layer.break_even == 20.0
    for rank, is_kept in ((19, False), (20, True), (30, True)):
        plan = make_plan([layer, last], 0, lambda _, rank=rank: rank)
        assert ("one" in plan.kept) is is_kept
        assert _saved(plan) == (0 if is_kept else 1800 - 19 * 90)
    assert "below 20.0" in plan.kept["one"]


def test_a_rank_is_rounded_down_and_at_least_one() -> None:
    assert ratio_rank(WeightLayer("a", 10, 100), 0.29) == 2
    assert ratio_rank(WeightLayer("a", 100, 100), 0.29) == 29  # of which the product in floats is 28.999…
    assert ratio_rank(WeightLayer("a", 3, 100), 0.25) == 1
    assert ratio_rank(WeightLayer("a", 12, 2, (2, 2)), 0.5) == 4  # of eight columns


def test_layers_stay_full_for_reasons_that_are_told() -> None:
    layers = [
        WeightLayer("first", 9, 9),
        WeightLayer("grouped", 64, 64, (3, 3), 2),
        WeightLayer("point", 64, 64, (1, 1)),
        WeightLayer("tied", 64, 64, unfit="its weight is also first.weight"),
        WeightLayer("row", 64, 64, (1, 3)),
        WeightLayer("linear", 64, 64),
        WeightLayer("last", 64, 64),
    ]
    kept = standing(layers, 1)
    assert list(kept) == ["first", "grouped", "point", "tied", "last"]
    assert "first 1" in kept["first"] and "2 groups" in kept["grouped"] and kept["last"] == "the last layer"
    assert kept["tied"] == "its weight is also first.weight"
    assert layers[1].elements == 64 * 32 * 9  # each output has half of the inputs
    assert make_plan(layers, 0, lambda _: 4).ranks.keys() == {"first", "row", "linear"}


def test_ranks_that_no_layer_has_are_refused_together() -> None:
    layers = [WeightLayer("one", 8, 4), WeightLayer("two", 4, 8), WeightLayer("last", 8, 8)]
    with pytest.raises(ValueError, match="one: rank 5 is not from 1 to its full rank, 4\nlayer two: rank 0"):
        make_plan(layers, 0, lambda layer: 5 if layer.name == "one" else 0)


def test_the_learning_rate_rises_evenly_after_the_switch() -> None:
    assert [re_warm_up(since, 4) for since in range(6)] == [0.25, 0.5, 0.75, 1.0, 1.0, 1.0]
    assert re_warm_up(0, 0) == 1.0
