"""The figures of the SPD-KFAC paper's authors, and what is left over from them."""

from __future__ import annotations

import pytest
import torch

from experiments.common.papers.declaration import load
from experiments.common.papers.kfac import ARMS, FACTOR_ELEMENTS, MODELS
from testbed.core.costs.kfac_plan import in_order
from testbed.core.models.catalogue import find_model
from testbed.worker.methods.kfac.replayed_curvature import ReplayedCurvature
from testbed.worker.workloads.replay import Replay

ITERATION_S = {"ResNet-50": 0.8525, "ResNet-152": 1.5807, "DenseNet-201": 1.4964, "Inception-v4": 1.1857}
"""Of D-KFAC; and of it: factors, computed and summed one after the other, and all inverses by everyone."""
FACTORS_S = {"ResNet-152": 0.629, "DenseNet-201": 0.667, "Inception-v4": 0.488}
INVERSES_S = {"ResNet-152": 0.676, "DenseNet-201": 0.482, "Inception-v4": 0.431}
FACTOR_SUMS_S, GRADIENT_SUMS_S = 0.173, 0.065
"""Of ResNet-50."""


@pytest.mark.parametrize("name", FACTOR_ELEMENTS)
def test_triangles_are_the_replayed_models(name: str) -> None:
    torch.set_num_threads(1)
    workload = Replay(model=name)
    curvature = ReplayedCurvature(workload, workload.model(0), 1, "cholesky")
    factors = in_order([curvature.layer(layer) for layer in curvature.modules])
    assert sum(factor.elements for factor in factors) == pytest.approx(FACTOR_ELEMENTS[name], rel=1e-3)


@pytest.mark.parametrize("case", FACTORS_S)
def test_computing_is_what_is_left_over_when_sending_is_taken_out(case: str) -> None:
    model, first = MODELS[case], MODELS["ResNet-50"]
    elements = FACTOR_ELEMENTS[model.name] / FACTOR_ELEMENTS[first.name]
    parameters = find_model(model.name).parameters / find_model(first.name).parameters
    assert model.factor_s == pytest.approx(FACTORS_S[case] - FACTOR_SUMS_S * elements, abs=1e-3)
    assert model.inverse_s == INVERSES_S[case]
    left_s = ITERATION_S[case] - FACTORS_S[case] - INVERSES_S[case] - GRADIENT_SUMS_S * parameters
    assert model.step_s == pytest.approx(left_s, abs=1e-3)


def test_the_parts_of_a_resnet_50_iteration_add_up_to_it() -> None:
    whole_s = MODELS["ResNet-50"].compute_s + FACTOR_SUMS_S + GRADIENT_SUMS_S
    assert whole_s == pytest.approx(ITERATION_S["ResNet-50"], rel=0.03)


@pytest.mark.parametrize("name", ["spd-kfac", "pad-kfac"])
def test_runs_of_a_case_differ_in_their_strategy_alone(name: str) -> None:
    shared: dict[tuple[str, str], set[tuple[str, ...]]] = {}
    for trial in load(name).trials(True):
        asked = tuple(word for word in trial.overrides if word not in ARMS[trial.arm] and not word.startswith("seed="))
        shared.setdefault((trial.kind, trial.case), set()).add(asked)
    assert len(shared) == 2 * len(MODELS) and all(len(each) == 1 for each in shared.values())
