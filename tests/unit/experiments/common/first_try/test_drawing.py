"""Drawn configurations: which there are, that a seed repeats them, and that the configuration takes them."""

from __future__ import annotations

import pytest

from experiments.common.first_try.drawing import COUNT, FACTORS, SEED, Drawn, draw
from experiments.common.first_try.length import LIMIT_S, length
from testbed.orchestrator.config.config import resolve


@pytest.mark.parametrize("seed", [SEED, 0, 1, 2])
def test_each_value_is_drawn_at_least_once_and_no_keys_exclude_each_other(seed: int) -> None:
    drawn = draw(seed)
    assert len(drawn) == len(set(drawn)) == COUNT
    for factor, values in FACTORS.items():
        assert {getattr(one, factor) for one in drawn} == set(values)
    assert not [one for one in drawn if one.exclusion]


def test_a_seed_repeats_its_draw_and_another_draws_others() -> None:
    assert draw(5) == draw(5)
    assert draw(5) != draw(6)


@pytest.mark.parametrize(
    ("drawn", "is_excluded"),
    [
        (Drawn("wan1g", "ddp", "none", 4, "digits"), False),
        (Drawn("wan1g", "torch_ddp", "topk", 4, "digits"), True),
        (Drawn("wan1g", "parameter_server", "none", 4, "replay"), True),
        (Drawn("wan1g", "parameter_server", "powersgd", 4, "digits"), True),
        (Drawn("wan1g", "parameter_server", "sz3", 2, "digits"), False),
        (Drawn("wan1g", "hybrid", "none", 4, "replay"), True),
        (Drawn("wan1g", "hybrid", "none", 5, "digits"), True),
        (Drawn("wan1g", "hybrid", "topk", 2, "digits"), True),
        (Drawn("wan1g", "hybrid", "none", 2, "digits"), False),
        (Drawn("aws8", "ddp", "none", 7, "digits"), True),
        (Drawn("aws8", "ddp", "none", 8, "digits"), False),
        (Drawn("wan10m", "pad_kfac", "sz3", 16, "replay"), False),
    ],
)
def test_what_is_excluded(drawn: Drawn, is_excluded: bool) -> None:
    assert bool(drawn.exclusion) == is_excluded


@pytest.mark.parametrize("index", [0, COUNT - 1])
def test_a_drawn_configuration_is_one_that_the_command_takes(index: int) -> None:
    drawn = draw()[index]
    spec = resolve(drawn.overrides).spec
    assert (spec.topo, spec.strategy.name, spec.compressor.name) == (drawn.topo, drawn.strategy, drawn.compressor)
    assert (spec.workers, spec.workload.name, spec.steps) == (drawn.workers, drawn.workload, drawn.length.steps)
    assert spec.auto_dilation and spec.device.name == ("paced" if drawn.workload == "replay" else "native")


def test_more_steps_are_taken_where_a_step_is_shorter() -> None:
    one = length("lan", "ddp", "none", 2, "digits")
    assert (
        one.steps
        > length("wan100m", "ddp", "none", 2, "digits").steps
        > length("wan10m", "ddp", "none", 2, "digits").steps
    )
    assert one.training_s < LIMIT_S


def test_a_replay_takes_the_largest_model_that_fits() -> None:
    assert length("lan", "ddp", "none", 2, "replay").model == "resnet50"
    assert length("wan10m", "ddp", "none", 4, "replay").model == "resnet20"
