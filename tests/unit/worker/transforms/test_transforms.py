"""When transforms switch and to what: on the project's own models, once, and from a checkpoint."""

from __future__ import annotations

import copy
import inspect
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from torch import nn

from testbed.core.costs.low_rank import LowRankPlan
from testbed.core.errors import InputError
from testbed.worker.communication.communicator import Communicator
from testbed.worker.interfaces.transform import Transform
from testbed.worker.interfaces.transform_capabilities import DecayExempt, ModelSwitch, OptimizerHook, RateChange
from testbed.worker.interfaces.workload import parameters_crc32
from testbed.worker.methods.low_rank.factorization import low_rank_layers
from testbed.worker.transforms.cuttlefish import Cuttlefish
from testbed.worker.transforms.lora import LoRA
from testbed.worker.transforms.none import Unchanged
from testbed.worker.transforms.pufferfish import Pufferfish
from testbed.worker.workloads.bytelm import Bytelm
from testbed.worker.workloads.glyphs import Glyphs
from testbed.worker.workloads.replay import Replay
from tests.unit.worker.factorable import context, small, trained

CONF = Path(__file__).resolve().parents[4] / "experiments" / "conf" / "transform"


def _parameters(model: nn.Module) -> int:
    return sum(p.numel() for p in model.parameters())


def _switched(transform: ModelSwitch, model: nn.Module, steps: int) -> tuple[int, LowRankPlan] | None:
    """After which step it has a plan, of a model that does not change."""
    plans = [(step, plan) for step in range(steps) if (plan := transform.plan_after(model, step)) is not None]
    return plans[0] if plans else None


# what a quarter of the rank is of the project's models, with the first layer full


def test_of_glyphs_all_but_the_first_and_the_last_layer_are_factorised() -> None:
    model, transform = Glyphs().model(0), Pufferfish()
    transform.bind(context(model))
    plan = transform.plan_after(model, 9)
    assert plan is not None
    assert plan.ranks == {"3": 8, "7": 16, "11": 24, "15": 40}
    assert list(plan.kept) == ["0", "17"]
    before = _parameters(model)
    note = transform.switch(model, plan, 9).to_json()
    assert (note["parameters_before"], note["parameters"]) == (before, _parameters(model)) == (332_525, 99_437)
    assert [one["full_rank"] for one in note["factorised"]] == [32, 64, 96, 160]
    assert model(torch.zeros(2, 1, 32, 32)).shape == (2, 45)


@torch.no_grad()
def test_at_the_switch_the_loss_becomes_that_of_the_full_model_with_truncated_weights() -> None:
    workload, model, transform = Glyphs(), Glyphs().model(0), Pufferfish()
    torch.manual_seed(0)
    batch = torch.randn(32, 1, 32, 32), torch.arange(32)
    transform.bind(context(model))
    plan = transform.plan_after(model, 9)
    assert plan is not None
    before, truncated = float(workload.loss(model, batch)), copy.deepcopy(model)
    for name, rank in plan.ranks.items():
        weight = truncated.get_submodule(name).weight
        left, values, right = torch.linalg.svd(weight.flatten(1), full_matrices=False)
        weight.copy_((left[:, :rank] * values[:rank] @ right[:rank]).view_as(weight))
    transform.switch(model, plan, 9)
    expected = float(workload.loss(truncated, batch))
    assert float(workload.loss(model, batch)) == pytest.approx(expected, rel=1e-5)
    assert abs(expected - before) > 0.01 * before


def test_of_bytelm_every_map_of_its_blocks_is_factorised_and_embeddings_and_head_are_not() -> None:
    model, transform = Bytelm().model(0), Pufferfish(keep_first=0)
    transform.bind(context(model))
    plan = transform.plan_after(model, 9)
    assert plan is not None
    names = [f"blocks.{block}.{part}" for block in range(3) for part in ("attend", "project", "widen", "shrink")]
    assert plan.ranks == dict.fromkeys(names, 32)
    assert list(plan.kept) == ["head"]
    note = transform.switch(model, plan, 9).to_json()
    assert (note["parameters_before"], note["parameters"]) == (668_800, 275_584)
    assert model(torch.zeros(2, 64, dtype=torch.long)).shape == (2, 64, 256)


@pytest.mark.parametrize("kind", ["replay", "two layers"])
def test_a_model_of_which_nothing_may_be_factorised_is_refused(kind: str) -> None:
    model = Replay(model="mobilenet_v2").model(0) if kind == "replay" else nn.Sequential(*small()[-2:])
    for transform in (Pufferfish(), Cuttlefish()):
        with pytest.raises(InputError, match="no linear map or convolution of the model may be factorised"):
            transform.bind(context(model))


# Pufferfish


def test_pufferfish_switches_once_after_its_share_or_its_steps() -> None:
    for given, expected in (
        ({}, 9),
        ({"warm_up_share": 0.5}, 19),
        ({"warm_up_steps": 3}, 2),
        ({"warm_up_share": 0.0}, 0),
    ):
        transform = Pufferfish(**given)
        model = small()
        transform.bind(context(model))
        switched = _switched(transform, model, 40)
        assert switched is not None and switched[0] == expected
        transform.switch(model, switched[1], expected)
        assert _switched(transform, model, 40) is None


def test_a_warm_up_as_long_as_the_run_is_a_fault() -> None:
    assert list(Pufferfish(warm_up_steps=39).validate(40)) == []
    (fault,) = Pufferfish(warm_up_steps=40).validate(40)
    assert fault.startswith("warm_up_steps=40: ")
    (fault,) = Pufferfish(warm_up_share=0.99).validate(10)
    assert fault.startswith("warm_up_share=0.99: ")


def test_the_learning_rate_is_full_until_the_switch_and_rises_after_it() -> None:
    transform, model = Pufferfish(warm_up_steps=3, rewarm_steps=2), small()
    transform.bind(context(model))
    assert [transform.rate_factor(step) for step in (0, 2)] == [1.0, 1.0]
    plan = transform.plan_after(model, 2)
    assert plan is not None
    transform.switch(model, plan, 2)
    assert [transform.rate_factor(step) for step in (3, 4, 5)] == [0.5, 1.0, 1.0]


# what the loop needs


class _Compared(Communicator):
    """Notes what ranks would compare."""

    def __init__(self) -> None:
        super().__init__(0, 1, 10.0)
        self.values: list[int] = []

    def require_equal(self, value: int, what: str) -> None:
        self.values.append(value)


def test_ranks_compare_what_they_have_factorised() -> None:
    comm, model, other = _Compared(), small(), small()
    with torch.no_grad():
        other[0].weight[0, 0] += 1e-3
    for each in (model, other):
        transform = Pufferfish(keep_first=0)
        transform.bind(context(each, comm=comm))
        transform.switch(each, LowRankPlan(tuple(transform.layers), {"0": 2}, {}), 0)
    assert comm.values == [parameters_crc32(model), parameters_crc32(other)]
    assert len(set(comm.values)) == 2


@pytest.mark.parametrize("kind", [Pufferfish, Cuttlefish])
def test_a_transform_switches_once_and_warms_up_again(kind: Any) -> None:
    transform, model = kind(keep_first=0, rewarm_steps=3), small()
    transform.bind(context(model))
    for step in range(40):
        trained(model, step)
        plan = transform.plan_after(model, step)
        if plan is not None:
            transform.switch(model, plan, step)
            assert list(low_rank_layers(model)) == list(plan.ranks) != []
            assert transform.plan_after(model, 38) is None
            assert 0.0 < transform.rate_factor(step + 1) < transform.rate_factor(step + 2) < 1.0
            return
    pytest.fail("it never switched")


def test_none_leaves_everything_as_it_is() -> None:
    transform, model = Unchanged(), small()
    transform.bind(context(model))
    assert not isinstance(transform, ModelSwitch | RateChange | OptimizerHook | DecayExempt)


_BAD: list[tuple[type[Transform], dict[str, Any]]] = [
    (
        Pufferfish,
        {"ratio": 0, "keep_first": -1, "warm_up_share": 1, "warm_up_steps": 0, "rewarm_steps": 1.5, "extra_norm": 1},
    ),
    (
        Cuttlefish,
        {
            "observations": 3,
            "window": 0,
            "tail": 1,
            "epsilon": 0,
            "relaxed": 1,
            "keep_first": -1,
            "speedup_threshold": 0,
            "floor": 1,
            "singular_share": 1,
            "rewarm_steps": -1,
            "frobenius_decay": -1,
        },
    ),
    (LoRA, {"rank": 0, "alpha": 0, "layers": [], "train": "head"}),
    (LoRA, {"rank": 1.5, "alpha": float("inf"), "layers": ["a", ""], "train": [True]}),
]


@pytest.mark.parametrize(("kind", "given"), _BAD)
def test_bad_parameters_are_refused_all_at_once(kind: type[Transform], given: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="must be") as caught:
        kind(**given)
    assert [line.split("=")[0] for line in str(caught.value).splitlines()] == list(given)


@pytest.mark.parametrize("kind", [Unchanged, Pufferfish, Cuttlefish, LoRA])
def test_its_file_lists_every_parameter_with_its_default(kind: type[Transform]) -> None:
    (name,) = {path.stem for path in CONF.glob("*.yaml") if f".{kind.__name__}\n" in path.read_text()}
    given = yaml.safe_load((CONF / f"{name}.yaml").read_text())
    assert given.pop("_target_") == f"testbed.worker.transforms.{name}.{kind.__name__}"
    parameters = inspect.signature(kind).parameters
    assert given == {key: parameter.default for key, parameter in parameters.items()}


def test_a_run_shorter_than_its_observations_is_a_fault() -> None:
    assert list(Cuttlefish().validate(40)) == []
    assert list(Cuttlefish().validate(39)) == ["observations=40: the run has 39 steps"]
