"""GRACE's models on one GPU, and what its declaration asks for."""

from __future__ import annotations

import pytest

from experiments.benchmarks.grace import published
from experiments.common.papers.declaration import load
from experiments.common.papers.grace import BEST_RATIO, DENSE, METHODS, MODELS, WORKERS, Model
from experiments.reproductions.grace import declaration as grace
from testbed.core.models.catalogue import find_model
from testbed.core.units import parse_size_bytes

RESNET_50 = MODELS["ResNet-50"]


def test_one_gpu_is_as_fast_as_the_best_run_of_the_released_data() -> None:
    assert max(published.RATIOS["ResNet-50", 10].values()) == BEST_RATIO
    assert WORKERS * RESNET_50.batch_size / RESNET_50.step_s == pytest.approx(2200 * 1.40, rel=1e-3)
    vgg, vgg_16 = MODELS["VGG-19"], find_model("vgg16").forward_flop
    slower = (219 / 154) * find_model("vgg19").forward_flop / vgg_16
    assert vgg.step_s / vgg.batch_size == pytest.approx(slower * RESNET_50.step_s / RESNET_50.batch_size, rel=1e-3)


@pytest.mark.parametrize("name", ["ResNet-20", "DenseNet-40", "NCF", "LSTM"])
def test_other_models_go_at_the_flop_rate_of_resnet_50(name: str) -> None:
    rates = [m.batch_size * find_model(m.name).forward_flop / m.step_s for m in (MODELS[name], RESNET_50)]
    assert rates[0] == pytest.approx(rates[1], rel=2e-3)


@pytest.mark.parametrize("model", MODELS.values(), ids=MODELS)
def test_dense_gradients_go_in_more_than_one_bucket(model: Model) -> None:
    assert parse_size_bytes(model.bucket) <= find_model(model.name).parameters * 4 / 3


def test_the_batch_is_one_with_which_the_claim_is_no_more_than_the_gpu_does() -> None:
    ring_s = RESNET_50.all_reduce_s(1e9)
    assert ring_s == pytest.approx(1.431, rel=1e-3)
    samples_s = RESNET_50.batch_size / RESNET_50.step_s
    assert load("grace").claimed * RESNET_50.batch_size / ring_s <= samples_s
    assert load("grace").claimed * (RESNET_50.batch_size + 32) / ring_s > samples_s


def test_runs_of_a_case_differ_in_their_arm_alone() -> None:
    shared: dict[tuple[str, str], set[tuple[str, ...]]] = {}
    for trial in load("grace").trials(True):
        own = len(grace.ARMS[trial.arm])
        before = trial.overrides[: len(trial.overrides) - own]
        assert trial.overrides[len(before) :] == grace.ARMS[trial.arm]
        asked = tuple(word for word in before if not word.startswith("seed="))
        shared.setdefault((trial.kind, trial.case), set()).add(asked)
    assert set(shared) == {
        *(("emulated", case) for case in grace.CASES),
        *(("simulated", case) for case in (grace.SLOW, grace.SMALL)),
    }
    assert all(len(each) == 1 for each in shared.values())


@pytest.mark.parametrize("full", [False, True])
def test_every_case_has_a_dense_run_overlapped_with_backward(full: bool) -> None:
    arms: dict[tuple[str, str], set[str]] = {}
    for trial in load("grace").trials(full):
        arms.setdefault((trial.kind, trial.case), set()).add(trial.arm)
    assert all(DENSE in each for each in arms.values())
    assert {name for name in METHODS if name in arms["emulated", grace.SLOW]} == {
        *(name for name in grace.ARMS if name in METHODS and name != grace.UNSCALED)
    }
    assert grace.UNSCALED in arms["emulated", grace.SMALL] and grace.UNSCALED in arms["simulated", grace.SLOW]
