"""Adapters: what the model computes with them, which of its parameters learn, and what merging makes of them."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from testbed.core.errors import InputError
from testbed.worker.interfaces.transform_capabilities import ModelSwitch
from testbed.worker.interfaces.workload import Workload, trained
from testbed.worker.methods.low_rank.adapters import adapted_layers, merged
from testbed.worker.transforms.lora import LoRA
from testbed.worker.workloads.bytelm import Bytelm
from testbed.worker.workloads.digits import Digits
from testbed.worker.workloads.glyphs import Glyphs
from testbed.worker.workloads.replay import Replay
from tests.unit.worker.factorable import context, small

TEXT = torch.arange(2 * 64).view(2, 64) % 256
IMAGES = torch.randn(3, 1, 32, 32, generator=torch.Generator().manual_seed(3))
MODELS: list[tuple[Workload, Tensor]] = [(Glyphs(), IMAGES), (Bytelm(), TEXT)]
MAPS = [f"blocks.{block}.{part}" for block in range(3) for part in ("attend", "project", "widen", "shrink")]


class Awkward(nn.Module):
    """Convolutions with strides, in groups, without a bias; a layer under two names; two layers with one weight."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.strided = nn.Conv2d(4, 12, (3, 5), stride=2, padding=(1, 2), dilation=1, bias=False)
        self.wide = nn.Conv2d(12, 12, 3, padding=2, dilation=2, padding_mode="circular")
        self.grouped = nn.Conv2d(12, 12, 3, padding=1, groups=3)
        self.norm = nn.BatchNorm2d(12)
        self.first = nn.Linear(12, 12)
        self.again = self.first
        self.tied, self.other = nn.Linear(12, 12), nn.Linear(12, 12)
        self.other.weight = self.tied.weight

    def forward(self, images: Tensor) -> Tensor:
        hidden = self.norm(self.grouped(self.wide(self.strided(images))))
        hidden = self.again(torch.tanh(self.first(hidden.mean(dim=(2, 3)))))
        return self.other(torch.tanh(self.tied(hidden)))


def _learning(model: nn.Module) -> set[str]:
    return {name for name, parameter in model.named_parameters() if parameter.requires_grad}


def _drawn(model: nn.Module) -> nn.Module:
    """With adapters that do something."""
    generator = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for layer in adapted_layers(model).values():
            layer.up.weight.copy_(0.1 * torch.randn(layer.up.weight.shape, generator=generator))
    return model


@pytest.mark.parametrize(("workload", "inputs"), MODELS)
def test_at_first_the_model_is_the_one_it_was_made_of_bit_for_bit(workload: Workload, inputs: Tensor) -> None:
    plain, model = workload.model(0), workload.model(0)
    note = LoRA(rank=4).begin(model, seed=0).to_json()
    assert torch.equal(model(inputs), plain(inputs))
    assert len(adapted_layers(model)) == len(note["factorised"]) > 4
    assert not torch.equal(_drawn(model)(inputs), plain(inputs))


def test_in_numbers_it_is_alpha_over_rank_times_what_both_factors_make_of_the_inputs() -> None:
    model = small()
    weight, bias = model[2].weight.detach().clone(), model[2].bias.detach().clone()
    LoRA(rank=2, alpha=3.0, layers=[2]).begin(model, seed=0)
    _drawn(model)
    inputs = torch.randn(5, 24)
    down, up = model[2].down.weight, model[2].up.weight
    assert (down.shape, up.shape) == ((2, 24), (24, 2))
    expected = inputs @ weight.T + bias + 1.5 * (inputs @ down.T @ up.T)
    torch.testing.assert_close(model[2](inputs), expected)
    torch.testing.assert_close(model[2].weight(), weight + 1.5 * up @ down)


def test_adapters_follow_from_seed_and_layer_alone() -> None:
    def down(seed: int, **given: Any) -> Tensor:
        model = small()
        LoRA(rank=3, **given).begin(model, seed)
        weight: Tensor = model[2].down.weight
        return weight

    torch.manual_seed(17)
    state = torch.random.get_rng_state()
    assert torch.equal(down(1), down(1, layers=["2"]))
    assert not torch.equal(down(1), down(2))
    small()
    torch.manual_seed(17)
    assert torch.equal(torch.random.get_rng_state(), state)
    model = Bytelm().model(0)
    before = torch.random.get_rng_state()
    LoRA(rank=8).begin(model, 0)
    assert torch.equal(torch.random.get_rng_state(), before), "nothing is drawn from torch's own generator"
    weights = [layer.down.weight.detach() for layer in adapted_layers(model).values()]
    drawn = torch.cat([weight.flatten() * weight[0].numel() ** 0.5 for weight in weights])
    assert abs(float(drawn.mean())) < 0.03 and abs(float(drawn.std()) - 1) < 0.03
    assert not torch.equal(model.blocks[0].attend.down.weight, model.blocks[1].attend.down.weight)


def test_only_adapters_learn_and_what_was_named() -> None:
    model = Bytelm().model(0)
    note = LoRA(rank=8, layers=["blocks.*.attend", "blocks.1"], train=["head", "*.bias"]).begin(model, 0).to_json()
    adapted = {"blocks.0.attend", "blocks.2.attend", *(name for name in MAPS if name.startswith("blocks.1."))}
    assert set(adapted_layers(model)) == adapted == {layer["layer"] for layer in note["factorised"]}
    factors = {f"{name}.{side}.weight" for name in adapted for side in ("down", "up")}
    plain = Bytelm().model(0)
    biases = {name for name, _ in plain.named_parameters() if name.endswith(".bias")}
    moved = {f"{n.removesuffix('.bias')}.base.bias" if n.removesuffix(".bias") in adapted else n for n in biases}
    assert _learning(model) == factors | moved | {"head.weight"}
    assert note["parameters"] == sum(p.numel() for p in trained(model))
    assert note["parameters_before"] == sum(p.numel() for p in plain.parameters())
    assert note["kept"]["blocks.0.project"] == "not among transform.layers"


def test_a_layer_that_is_trained_itself_has_no_adapter() -> None:
    model = small()
    note = LoRA(rank=2, train=["5"]).begin(model, 0).to_json()
    assert note["kept"] == {"5": "its weight is trained itself"}
    assert {"5.weight", "5.bias"} < _learning(model) and "0.base.weight" not in _learning(model)


def test_what_cannot_have_an_adapter_is_left_and_said() -> None:
    model = Awkward()
    note = LoRA(rank=2).begin(model, 0).to_json()
    assert [layer["layer"] for layer in note["factorised"]] == ["strided", "wide", "first"]
    assert note["kept"] == {
        "grouped": "a convolution in 3 groups",
        "tied": "its weight is also other.weight",
        "other": "its weight is also tied.weight",
    }
    assert model.again is model.first
    assert note["factorised"][0]["factor_elements"] == 2 * (4 * 15 + 12)
    assert note["parameters"] == sum(layer["factor_elements"] for layer in note["factorised"])
    assert LoRA(rank=6).begin(small(), 0).kept == {
        "5": "rank 6 saves nothing: it would have to be below 2.7",
    }


@torch.no_grad()
@pytest.mark.parametrize("kind", ["awkward", "glyphs", "bytelm"])
def test_merged_it_is_the_plain_model_and_computes_the_same(kind: str) -> None:
    inputs = {"awkward": torch.randn(3, 4, 9, 9), "glyphs": IMAGES, "bytelm": TEXT}[kind]
    plain = {"awkward": Awkward, "glyphs": lambda: Glyphs().model(0), "bytelm": lambda: Bytelm().model(0)}[kind]()
    model = copy.deepcopy(plain)
    LoRA(rank=2, alpha=5.0).begin(model, 0)
    _drawn(model).eval()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    other = copy.deepcopy(plain).eval()
    other.load_state_dict(merged(model))  # strictly: the same names and shapes
    torch.testing.assert_close(other(inputs), model(inputs), rtol=1e-4, atol=1e-5)
    assert (other(inputs) - plain.eval()(inputs)).abs().max() > 1e-3
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert all(torch.equal(a, b) for a, b in zip(merged(plain).values(), plain.state_dict().values(), strict=True))


def test_of_a_trained_model_merging_leaves_the_metric_as_it_is() -> None:
    workload, transform = Digits(), LoRA(rank=4, train=["10"])
    assert not isinstance(transform, ModelSwitch), "it changes the model before the run, and never again"
    model = workload.model(0)
    transform.begin(model, 0)
    transform.bind(context(model))
    frozen = {name: p.detach().clone() for name, p in model.named_parameters() if not p.requires_grad}
    optimizer = workload.optimizer(trained(model))
    for step in range(12):
        optimizer.zero_grad()
        workload.loss(model, workload.batch(step, rank=0, world_size=1, batch_size=64, seed=0)).backward()
        optimizer.step()
    plain = workload.model(1)
    untrained = workload.evaluate(workload.model(0))
    plain.load_state_dict(transform.kept(model))
    assert workload.evaluate(plain) == pytest.approx(workload.evaluate(model), abs=1 / 360 + 1e-9)
    assert workload.evaluate(model) > untrained + 0.3
    assert all(torch.equal(p, frozen[name]) for name, p in model.named_parameters() if name in frozen)


def test_names_of_nothing_and_layers_that_cannot_are_refused_all_at_once() -> None:
    model = Awkward()
    with pytest.raises(InputError) as caught:
        LoRA(rank=2, layers=["grouped", "attend", "t*"], train=["head"]).begin(model, 0)
    layers, parameters, grouped, tied = caught.value.faults
    assert layers.startswith("transform.layers: the model has no attend; it has: strided, wide, grouped, first, tied")
    assert parameters.startswith("transform.train: the model has no head; it has: strided.weight, wide.weight")
    assert grouped == "transform.layers: grouped cannot have an adapter: a convolution in 3 groups"
    assert tied == "transform.layers: tied cannot have an adapter: its weight is also other.weight"
    assert _learning(model) == {name for name, _ in model.named_parameters()} and not adapted_layers(model)


@pytest.mark.parametrize(
    ("model", "given"),
    [
        (nn.Sequential(nn.Embedding(4, 4)), {}),
        (small(), {"train": ["*"]}),
        (small(), {"rank": 24}),
        (Replay(model="mobilenet_v2").model(0), {}),
    ],
)
def test_a_model_of_which_no_layer_can_have_an_adapter_is_refused(model: nn.Module, given: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="no linear map or convolution of the model can have an adapter"):
        LoRA(**given).begin(model, 0)
