"""LAMB's steps against vectors by hand, and against the paper's formulas in plain Python."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from testbed.core.errors import InputError
from testbed.worker.methods.optimizers.lamb import Lamb, LambRule
from testbed.worker.training.parts import build_parts
from tests.distributed.harness import make_spec

BETA1, BETA2, EPSILON = 0.5, 0.75, 1e-6


def rule(**given: Any) -> LambRule:
    params = {"learning_rate": 0.5, "beta1": BETA1, "beta2": BETA2, "epsilon": EPSILON, "weight_decay": 0.0}
    return LambRule(**{**params, "least_ratio": 0.01, "most_ratio": 1000.0, **given})


def stepped(weight: Tensor, gradients: Sequence[Tensor], **given: Any) -> Tensor:
    parameter = nn.Parameter(weight.clone())
    lamb = Lamb(torch.optim.SGD([parameter], lr=99.0), rule(**given))
    for gradient in gradients:
        parameter.grad = gradient.clone()
        lamb.step()
    return parameter.detach()


def test_the_first_step_by_hand() -> None:
    """Corrected, the moments of one step are g and g^2, so that u is g's sign: of norm 2, against |w| = 10."""
    weight = torch.tensor([[1.0, -7.0], [5.0, 5.0]])
    found = stepped(weight, [torch.tensor([[0.3, -2.0], [1.0, -5.0]])])
    assert found == pytest.approx(weight - 0.5 * 10 / 2 * torch.tensor([[1.0, -1.0], [1.0, -1.0]]), abs=1e-5)


def test_the_second_step_by_hand() -> None:
    """m = 1/4 g1 + 1/2 g2 over 3/4, v = 3/16 g1^2 + 1/4 g2^2 over 7/16: for g1 = 1 and g2 = (1, -1, 0, 2)."""
    gradients = [torch.ones(1, 4), torch.tensor([[1.0, -1.0, 0.0, 2.0]])]
    first = torch.full((1, 4), 8.0) - 0.5 * 8.0  # |w| = 16, |u| = 2
    u = torch.tensor([[1.0, -1 / 3, 1 / 3 / math.sqrt(3 / 7), 5 / 3 / math.sqrt(19 / 7)]])
    expected = first - 0.5 * 8.0 / float(u.norm()) * u
    assert stepped(torch.full((1, 4), 8.0), gradients) == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("shape", [(6, 5), (7,), (3, 2, 2)])
def test_it_takes_the_steps_of_the_paper(shape: tuple[int, ...]) -> None:
    generator = torch.Generator().manual_seed(1)
    weight, *gradients = (torch.randn(shape, generator=generator) for _ in range(6))
    found = stepped(weight, gradients, weight_decay=0.1, learning_rate=0.02)
    w = [float(x) for x in weight.view(-1)]
    m, v = [0.0] * len(w), [0.0] * len(w)
    decay = 0.1 if len(shape) > 1 else 0.0
    for t, gradient in enumerate(gradients, 1):
        g = [float(x) for x in gradient.view(-1)]
        m = [BETA1 * a + (1 - BETA1) * b for a, b in zip(m, g, strict=True)]
        v = [BETA2 * a + (1 - BETA2) * b * b for a, b in zip(v, g, strict=True)]
        u = [
            a / (1 - BETA1**t) / (math.sqrt(b / (1 - BETA2**t)) + EPSILON) + decay * c
            for a, b, c in zip(m, v, w, strict=True)
        ]
        ratio = math.hypot(*w) / math.hypot(*u) if len(shape) > 1 else 1.0
        w = [a - 0.02 * ratio * b for a, b in zip(w, u, strict=True)]
    assert found.view(-1).tolist() == pytest.approx(w, rel=1e-5, abs=1e-6)


@pytest.mark.parametrize(
    ("weight", "gradient", "ratio"),
    [
        (torch.zeros(1, 4), torch.ones(1, 4), 1.0),
        (torch.full((1, 4), 1e-3), torch.ones(1, 4), 0.25),
        (torch.full((1, 4), 9.0), torch.ones(1, 4), 2.0),
        (torch.full((4,), 9.0), torch.ones(4), 1.0),
    ],
    ids=["zero", "small", "large", "a vector"],
)
def test_the_trust_ratio_has_bounds(weight: Tensor, gradient: Tensor, ratio: float) -> None:
    found = stepped(weight, [gradient], least_ratio=0.25, most_ratio=2.0)
    assert found == pytest.approx(weight - 0.5 * ratio, abs=1e-5)


def test_no_gradients_make_a_longer_direction_than_the_bound() -> None:
    """Those that make the longest one: each beta1 / beta2 times the one after it. By hand for two steps:
    m = 1/2 + 1/4 2/3 over 3/4, v = 1/4 + 3/16 4/9 over 7/16."""
    assert rule().most_direction(1) == pytest.approx(1.0)
    assert rule().most_direction(2) == pytest.approx((2 / 3 * 4 / 3) / math.sqrt(1 / 3 * 16 / 7))
    weight, steps = torch.full((1, 4), 8.0), 5
    gradients = [torch.full((1, 4), (BETA1 / BETA2) ** (steps - t)) for t in range(1, steps + 1)]
    m, v = torch.zeros(1, 4), torch.zeros(1, 4)
    for t, gradient in enumerate(gradients, 1):
        rule().add(gradient, m, v)
        assert float(rule().direction(weight, m, v, t).max()) <= rule().most_direction(t) * (1 + 1e-6)
    assert float(rule().direction(weight, m, v, steps).max()) == pytest.approx(rule().most_direction(steps), rel=1e-4)
    assert float(rule().direction(weight, 9 * m, v, steps).max()) == pytest.approx(rule().most_direction(steps))


def test_moments_whose_ratio_has_no_bound_are_refused() -> None:
    with pytest.raises(InputError, match=r"strategy\.beta2=0\.8: must be above the square of beta1=0\.9"):
        build_parts(make_spec("lamb", strategy_params={"beta1": 0.9, "beta2": 0.8}))


def test_of_nothing_nothing_comes_but_decay() -> None:
    """|w| = 4, u = 0.1 w."""
    weight = torch.full((1, 4), 2.0)
    assert torch.equal(stepped(weight, [torch.zeros(1, 4)]), weight)
    assert stepped(weight, [torch.zeros(1, 4)], weight_decay=0.1) == pytest.approx(weight - 0.5 * 10 * 0.1 * weight)
    assert torch.equal(stepped(torch.ones(4), [torch.zeros(4)], weight_decay=0.1), torch.ones(4))


def test_the_workloads_learning_rates_count_as_they_are_in_each_step() -> None:
    parameters = [nn.Parameter(torch.full((1, 4), 2.0)) for _ in range(2)]
    given = torch.optim.SGD([{"params": [p], "lr": rate} for p, rate in zip(parameters, (0.5, 0.25), strict=True)])
    lamb = Lamb(given, rule(learning_rate=None))
    for scale in (1.0, 0.5):
        for group, rate in zip(given.param_groups, (0.5, 0.25), strict=True):
            group["lr"] = scale * rate
        for parameter in parameters:
            parameter.grad = torch.ones(1, 4)
        lamb.step()
    # each step takes its part of what is left
    found = [float(p.detach()[0, 0]) for p in parameters]
    assert found == pytest.approx([2 * 0.5 * 0.75, 2 * 0.75 * 0.875], rel=1e-5)


@pytest.mark.parametrize("strategy", ["lamb", "slamb"])
def test_bad_parameters_are_named_all_at_once(strategy: str) -> None:
    params = {
        "learning_rate": 0,
        "beta1": 1.0,
        "beta2": -0.1,
        "epsilon": 0,
        "weight_decay": 1,
        "least_ratio": 2,
        "most_ratio": 0.5,
        "collective": "smoke",
    }
    others = {"lamb": {"accumulate": 0, "clip_norm": 0}, "slamb": {"density": 1e-3, "sync_every": 0, "beta3": 0}}
    asked = params | others[strategy]
    with pytest.raises(InputError) as caught:
        build_parts(make_spec(strategy, strategy_params=asked))
    assert len(caught.value.faults) == len(asked)
    assert all(f"strategy.{name}={value}: " in str(caught.value) for name, value in asked.items())


@pytest.mark.parametrize(
    ("strategy", "compressor", "feedback", "said"),
    [
        ("lamb", "onebit_adam", "auto", "takes over the optimizer; use strategy=ddp"),
        ("lamb", "dgc", "auto", "takes over the optimizer's momentum; use strategy=ddp"),
        ("slamb", "topk", "auto", "leaves out"),
        ("slamb", "topk", "off", "leaves out"),
        ("slamb", "fp16", "on", "leaves out"),
        ("slamb", "powersgd", "auto", "leaves out"),
        ("slamb", "onebit_adam", "auto", "takes over the optimizer, which is LAMB's"),
        ("slamb", "signsgd", "auto", "takes over the optimizer"),
    ],
)
def test_compressors_that_do_not_go_with_it_are_refused_by_name(
    strategy: str, compressor: str, feedback: str, said: str
) -> None:
    spec = make_spec(strategy, compressor, compressor_params={"feedback": feedback})
    with pytest.raises(InputError) as caught:
        build_parts(spec)
    (fault,) = caught.value.faults
    assert fault.startswith(f"strategy={strategy}")
    assert spec.compressor.target.rpartition(".")[2] in fault
    assert said in fault


@pytest.mark.parametrize("compressor", ["none", "fp16", "int8", "zstd"])
def test_momenta_go_through_what_leaves_nothing_behind(compressor: str) -> None:
    build_parts(make_spec("slamb", compressor))
