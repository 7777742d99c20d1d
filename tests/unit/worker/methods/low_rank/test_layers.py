"""Layers of two factors: what they compute, what they lose, and the models they are put into."""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils import parametrizations

from testbed.worker.methods.low_rank.factorization import factor_names, factorise, low_rank_layers, weight_layers
from testbed.worker.methods.low_rank.layers import Full, LowRankConv2d, low_rank
from testbed.worker.methods.low_rank.spectrum import factors, share_rank, singular_values, stable_rank
from testbed.worker.transforms.cuttlefish import FrobeniusDecay

LAYERS: dict[str, tuple[Callable[[], Full], tuple[int, ...]]] = {
    "linear": (lambda: nn.Linear(12, 7), (5, 12)),
    "linear of tokens": (lambda: nn.Linear(6, 18, bias=False), (5, 3, 6)),
    "convolution": (lambda: nn.Conv2d(3, 8, 3), (2, 3, 9, 8)),
    "strides": (lambda: nn.Conv2d(3, 8, (3, 2), stride=(2, 1), padding=(1, 2), bias=False), (2, 3, 9, 8)),
    "dilation": (lambda: nn.Conv2d(2, 40, (2, 3), padding=1, dilation=(3, 1)), (2, 2, 9, 8)),
    "same": (lambda: nn.Conv2d(3, 8, 3, padding="same"), (2, 3, 9, 8)),
    "reflected": (lambda: nn.Conv2d(3, 8, 3, padding=1, padding_mode="reflect"), (2, 3, 9, 8)),
}
each_layer = pytest.mark.parametrize("kind", LAYERS)


def _layer(kind: str, dtype: torch.dtype = torch.float32) -> tuple[Full, Tensor]:
    torch.manual_seed(0)
    make, shape = LAYERS[kind]
    return make().to(dtype), torch.randn(shape, dtype=dtype)


def _full_rank(layer: Full) -> int:
    return min(layer.weight.flatten(1).shape)


@each_layer
def test_at_full_rank_a_layer_computes_what_it_did(kind: str) -> None:
    layer, inputs = _layer(kind)
    factorised, lost = low_rank(layer, _full_rank(layer))
    torch.testing.assert_close(factorised(inputs), layer(inputs), atol=1e-5, rtol=0)
    assert lost == 0.0


@each_layer
def test_what_the_weight_loses_is_the_discarded_singular_values(kind: str) -> None:
    layer, inputs = _layer(kind, torch.float64)
    values = torch.linalg.svdvals(layer.weight.detach().flatten(1))
    for rank in range(1, _full_rank(layer)):
        factorised, lost = low_rank(layer, rank)
        product = (factorised.v.weight.flatten(1) @ factorised.u.weight.flatten(1)).view_as(layer.weight)
        error = float((layer.weight - product).detach().norm())
        assert error == pytest.approx(float(values[rank:].norm()), rel=1e-9)
        assert lost == pytest.approx(error / float(layer.weight.detach().norm()), rel=1e-9)
        same = copy.deepcopy(layer)
        same.weight.data.copy_(product)
        torch.testing.assert_close(factorised(inputs), same(inputs))


@each_layer
def test_factors_are_balanced_of_the_weights_dtype_and_draw_nothing(kind: str) -> None:
    layer, _ = _layer(kind, torch.bfloat16)
    before = torch.get_rng_state()
    factorised, _ = low_rank(layer.eval(), 2)
    assert torch.equal(torch.get_rng_state(), before)
    assert {p.dtype for p in factorised.parameters()} == {torch.bfloat16}
    assert all(not p.is_meta and p.requires_grad and p.is_contiguous() for p in factorised.parameters())
    u, v = factorised.u.weight.double(), factorised.v.weight.double()
    torch.testing.assert_close(u.flatten(1).norm(dim=1), v.flatten(1).norm(dim=0), atol=0.02, rtol=0)
    assert factorised.v.bias is layer.bias and factorised.u.bias is None
    assert not factorised.training and not factorised.v.training


def test_the_free_sign_of_a_singular_pair_is_settled() -> None:
    torch.manual_seed(0)
    weight = torch.randn(9, 14)
    u, v, _ = factors(weight, 5)
    largest = v.gather(0, v.abs().argmax(0, keepdim=True))
    assert (largest > 0).all()
    opposite = factors(-weight, 5)
    torch.testing.assert_close(opposite[1], v)
    torch.testing.assert_close(opposite[0], -u)
    assert factors(torch.zeros(3, 4), 2)[2] == 0.0


def test_an_extra_norm_stands_between_the_factors_of_a_convolution_alone() -> None:
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.Flatten(), nn.Linear(8, 8), nn.Linear(8, 2))
    factorise(model, {"0": 2, "2": 3}, extra_norm=True)
    conv = model[0]
    assert isinstance(conv, LowRankConv2d) and conv.norm is not None and conv.norm.num_features == 2
    hidden = conv.u(torch.randn(4, 3, 3, 3))
    assert model(torch.randn(4, 3, 3, 3)).shape == (4, 2)
    torch.testing.assert_close(conv.norm(hidden).mean((0, 2, 3)), torch.zeros(2), atol=1e-5, rtol=0)
    assert sum(isinstance(module, nn.BatchNorm2d) for module in model.modules()) == 1


def test_stable_ranks_are_those_of_their_definition() -> None:
    torch.manual_seed(0)
    for shape in ((6, 20), (20, 6), (8, 3, 3, 3)):
        weight = torch.randn(shape)
        expected = torch.linalg.svdvals(weight.flatten(1).double())
        values = singular_values(weight)
        torch.testing.assert_close(values, expected, rtol=1e-6, atol=1e-9)
        assert stable_rank(values) == pytest.approx(float((expected**2).sum() / expected[0] ** 2))
    assert stable_rank(singular_values(torch.eye(5))) == pytest.approx(5.0)
    assert stable_rank(singular_values(torch.ones(5, 7))) == pytest.approx(1.0)
    assert stable_rank(singular_values(torch.zeros(5, 7))) == 5.0


def test_initial_weights_have_the_stable_rank_that_random_matrices_have() -> None:
    torch.manual_seed(0)
    m, n = 256, 64
    found = stable_rank(singular_values(torch.randn(m, n)))
    assert found == pytest.approx(m * n / (m**0.5 + n**0.5) ** 2, rel=0.05)


def test_as_many_singular_values_as_make_up_a_share() -> None:
    values = torch.tensor([4.0, 3.0, 2.0, 1.0])
    assert [share_rank(values, share) for share in (0.0, 0.39, 0.41, 0.7, 0.91)] == [1, 1, 2, 2, 4]


class _Shared(nn.Module):
    """One layer under three names, two of one parent; and a head of the embedding's weight."""

    def __init__(self) -> None:
        super().__init__()
        self.one = nn.Linear(8, 8)
        self.two = self.one
        self.inner = nn.ModuleDict({"three": self.one})
        self.words = nn.Embedding(20, 8)
        self.head = nn.Linear(8, 20, bias=False)
        self.head.weight = self.words.weight

    def forward(self, words: Tensor) -> Tensor:
        return self.head(self.inner["three"](self.two(self.one(self.words(words)))))


def test_a_layer_with_several_names_is_replaced_under_all() -> None:
    torch.manual_seed(0)
    model = _Shared()
    words = torch.arange(20)
    before = model(words)
    assert [(layer.name, layer.unfit) for layer in weight_layers(model)] == [
        ("one", ""),
        ("head", "its weight is also words.weight"),
    ]
    factorise(model, {"one": 8})
    assert model.one is model.two is model.inner["three"]
    assert list(low_rank_layers(model)) == ["one"]
    torch.testing.assert_close(model(words), before, atol=1e-5, rtol=0)


class _Odd(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(8, 2)
        self.normed = parametrizations.weight_norm(nn.Linear(8, 8))
        self.frozen = nn.Linear(8, 8).requires_grad_(False)
        self.hooked = nn.Linear(8, 8)
        self.hooked.register_forward_hook(lambda *_: None)
        self.grouped = nn.Conv2d(8, 8, 3, groups=2)
        self.line = nn.Conv1d(8, 8, 3)
        self.words = nn.Embedding(8, 8)
        self.plain = nn.Linear(8, 8)


def test_what_two_modules_cannot_stand_for_is_refused_by_name_and_nothing_is_changed() -> None:
    model = _Odd()
    before = copy.deepcopy(model.state_dict())
    ranks = dict.fromkeys(["attention.out_proj", "normed", "frozen", "hooked", "grouped", "line", "words"], 2)
    with pytest.raises(ValueError, match="cannot be factorised") as caught:
        factorise(model, {"plain": 2} | ranks | {"norm": 1})
    lines = str(caught.value).splitlines()
    assert [line.split(":")[0] for line in lines] == [f"layer {name}" for name in (*ranks, "norm")]
    for word in ("NonDynamically", "other parameters", "does not learn", "hooks", "2 groups", "it has: attention"):
        assert any(word in line for line in lines), word
    assert model.state_dict().keys() == before.keys() and type(model.plain) is nn.Linear
    for rank in (0, 9):
        with pytest.raises(ValueError, match=f"rank {rank} is not from 1 to its full rank, 8"):
            factorise(model, {"plain": rank})


def test_factors_are_not_factorised_again() -> None:
    model = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8))
    (found,) = factorise(model, {"0": 2})
    assert (found.elements, found.factor_elements, found.rank) == (64, 32, 2)
    assert [layer.name for layer in weight_layers(model)] == ["1"]
    assert factor_names(model) == ["0.u.weight", "0.v.weight"]
    assert set(factor_names(model)) <= {name for name, _ in model.named_parameters()}
    with pytest.raises(ValueError, match=r"layer 0\.u: no linear map"):
        factorise(model, {"0.u": 1})


def _decayed() -> tuple[nn.Module, Tensor]:
    """A model with gradients of its loss, and the norm of the products of its factors."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(2, 6, 3, padding=1), nn.Flatten(), nn.Linear(96, 9), nn.Linear(9, 2)).double()
    factorise(model, {"0": 3, "2": 4})
    model(torch.randn(3, 2, 4, 4, dtype=torch.float64)).pow(2).mean().backward()
    products = (layer.v.weight.flatten(1) @ layer.u.weight.flatten(1) for layer in low_rank_layers(model).values())
    return model, sum((product.square().sum() for product in products), torch.zeros(()))


def _gradients(model: nn.Module) -> dict[str, Tensor]:
    return {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}


def test_frobenius_decay_is_the_gradient_of_the_products_norm() -> None:
    model, norm = _decayed()
    before = _gradients(model)
    named = dict(model.named_parameters())
    expected = torch.autograd.grad(0.03 / 2 * norm, [named[name] for name in factor_names(model)])
    FrobeniusDecay(model, 0.03).add()
    after = _gradients(model)
    for name, gradient in zip(factor_names(model), expected, strict=True):
        torch.testing.assert_close(after[name] - before[name], gradient)
        assert gradient.norm() > 0
    assert all(torch.equal(after[name], before[name]) for name in named if name not in factor_names(model))


def test_frobenius_decay_comes_before_each_step_to_the_factors_that_an_optimizer_has() -> None:
    model, _ = _decayed()
    named = dict(model.named_parameters())
    optimizer = torch.optim.SGD([named["0.u.weight"], named["3.weight"]], lr=0.0)
    decay = FrobeniusDecay(model, 0.03)
    decay.attach(optimizer)
    before = _gradients(model)
    decay.add()
    whole = _gradients(model)["0.u.weight"] - before["0.u.weight"]
    for name, gradient in before.items():
        named[name].grad = gradient.clone()
    named["2.v.weight"].grad = None
    optimizer.step()
    after = _gradients(model)
    torch.testing.assert_close(after.pop("0.u.weight") - before["0.u.weight"], whole)
    assert all(torch.equal(gradient, before[name]) for name, gradient in after.items())
