"""What sign methods promise beyond the common laws: bits, means, votes, and who keeps the learning rate."""

from __future__ import annotations

import pytest
import torch

from compressors.base.compressor import Compressor, Layout, Route
from compressors.base.payload import NonFiniteError, PayloadError
from compressors.parts.packing import SignBits
from compressors.signum import Signum
from tests.contract.catalogue import make
from tests.contract.lockstep import contexts, reduce_all

EIGHT = Layout(((8,),))


def _random(numel: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(numel, generator=torch.Generator().manual_seed(seed))


def _decoded(codec: Compressor, tensor: torch.Tensor) -> torch.Tensor:
    context = contexts(Layout(((tensor.numel(),),)), None, 1)[0]
    out = torch.empty_like(tensor)
    codec.decode(codec.encode(tensor, context), out, context)
    return out


@pytest.mark.parametrize("numel", [1, 7, 8, 9, 64, 65, 1000])
def test_signs_are_packed_eight_to_a_byte_in_order(numel: int) -> None:
    values = _random(numel)
    packed = torch.full(((numel + 7) // 8,), 255, dtype=torch.uint8)
    bits = SignBits(numel, values.device)
    bits.pack(values, packed)
    expected = [0] * len(packed)
    for index, value in enumerate(values.tolist()):
        expected[index // 8] |= int(value < 0) << index % 8
    assert packed.tolist() == expected
    signs = bits.unpack(packed)
    assert torch.equal(signs[:numel], values.sign())
    assert (signs[numel:] == 1).all()


def test_every_byte_unpacks_to_its_own_bits() -> None:
    packed = torch.arange(256, dtype=torch.uint8)
    signs = SignBits(2048, packed.device).unpack(packed).view(256, 8)
    for byte in range(256):
        assert signs[byte].tolist() == [-1.0 if byte >> bit & 1 else 1.0 for bit in range(8)]


def test_efsignsgd_is_the_mean_magnitude_with_signs() -> None:
    given = torch.tensor([1.0, -2.0, 3.0, -4.0, 0.0, 0.0, 5.0, -1.0, 7.0, -1.0])  # |x| sums to 16, then to 8 of two
    out = _decoded(make("efsignsgd", block_size=8), given)
    assert out.tolist() == [2.0, -2.0, 2.0, -2.0, 2.0, 2.0, 2.0, -2.0, 4.0, -4.0]


def test_onebit_is_the_mean_of_each_side() -> None:
    given = torch.tensor([1.0, -2.0, 3.0, -4.0, 0.0, 0.0, 4.0, -3.0, -7.0, -1.0])
    out = _decoded(make("onebit", block_size=8), given)
    above, below = 8 / 5, -3.0
    expected = [above, below, above, below, above, above, above, below, -4.0, -4.0]
    assert out.tolist() == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("name", ["onebit", "efsignsgd"])
def test_a_block_may_be_larger_than_any_tensor(name: str) -> None:
    given = torch.tensor([1.0, 3.0, -6.0, 2.0])
    out = _decoded(make(name, block_size=2**20), given)
    assert out.tolist() == ([2.0, 2.0, -6.0, 2.0] if name == "onebit" else [3.0, 3.0, -3.0, 3.0])


@pytest.mark.parametrize("name", ["onebit", "efsignsgd"])
def test_scaled_signs_lose_no_more_than_their_formula_says(name: str) -> None:
    size, values = 64, _random(64 * 50, seed=1).pow(3)
    lost = (values - _decoded(make(name, block_size=size), values)).double().view(-1, size).square().sum(dim=1)
    blocks = values.double().view(-1, size)
    bound = blocks.square().sum(dim=1) - blocks.abs().sum(dim=1).square() / size
    if name == "efsignsgd":
        assert torch.allclose(lost, bound, rtol=1e-5)
    else:
        assert (lost <= bound * (1 + 1e-5)).all()


@pytest.mark.parametrize("name", ["onebit", "efsignsgd", "signsgd"])
@pytest.mark.parametrize("numel", [65536, 65544, 70001, 131072 + 8])
def test_pieces_of_a_large_tensor_are_what_they_are_alone(name: str, numel: int) -> None:
    values = _random(numel, seed=2)
    codec = make(name)
    whole = _decoded(codec, values)
    assert torch.equal(whole.sign(), values.sign())
    assert torch.equal(whole[65536:], _decoded(codec, values[65536:].clone()))
    assert torch.equal(whole[:65536], _decoded(codec, values[:65536]))


@pytest.mark.parametrize(("name", "bits"), [("onebit", 1.0626), ("efsignsgd", 1.0313), ("signsgd", 1.00001)])
def test_a_sign_takes_one_bit(name: str, bits: float) -> None:
    values = _random(1_000_000)
    payload = make(name).encode(values, contexts(Layout(((len(values),),)), None, 1)[0])
    assert 8 * len(payload) <= bits * len(values)


@pytest.mark.parametrize("name", ["onebit", "efsignsgd"])
def test_damage_stays_in_its_block(name: str) -> None:
    values = _random(4096)
    values[1500] = torch.nan
    out = _decoded(make(name), values)
    assert not out[1024:2048].isfinite().all()
    assert out[:1024].isfinite().all() and out[2048:].isfinite().all()


def _votes(name: str, ballots: list[list[float]], step: int = 0) -> list[float]:
    layout = Layout(((len(ballots[0]),),))
    ranks = [make(name) for _ in ballots]
    means, _, _ = reduce_all(ranks, [torch.tensor(b) for b in ballots], layout, Route.OWN, step=step)
    for mean in means:
        assert torch.equal(mean, means[0])
    return means[0].tolist()


@pytest.mark.parametrize("name", ["signsgd", "signum"])
def test_the_majority_decides_whatever_the_magnitudes(name: str) -> None:
    ballots = [[1.0, -1e-20, 3.0, -4.0], [1e-3, 9e9, -2.0, -1.0], [-1e9, -1.0, 1e-5, -2.0]]
    assert _votes(name, ballots) == [1.0, -1.0, 1.0, -1.0]


@pytest.mark.parametrize("world_size", [2, 4, 6])
def test_ties_and_zeros_go_up_and_down_by_turns(world_size: int) -> None:
    tie = [[1.0] * 8, [-1.0] * 8] * (world_size // 2)
    first, second = (_votes("signsgd", tie, step) for step in (0, 1))
    assert first == [1.0, -1.0] * 4 and second == [-1.0, 1.0] * 4
    zeros = [[0.0] * 8 + [1.0]] * world_size
    first, second = (_votes("signsgd", zeros, step) for step in (0, 1))
    assert [a + b for a, b in zip(first, second, strict=True)] == [0.0] * 8 + [2.0]
    assert first[8] == 1.0


def test_who_has_zeros_alone_casts_no_vote() -> None:
    assert _votes("signsgd", [[0.0] * 4, [0.0] * 4, [-1.0, 2.0, -3.0, 4.0]]) == [-1.0, 1.0, -1.0, 1.0]


def test_the_vote_is_the_sign_of_the_sum_of_signs_of_many() -> None:
    layout, world_size = Layout(((1001,),)), 7
    tensors = [_random(1001, seed) for seed in range(world_size)]
    means, _, _ = reduce_all([make("signsgd") for _ in tensors], tensors, layout, Route.OWN)
    assert torch.equal(means[0], torch.stack([t.sign() for t in tensors]).sum(dim=0).sign())


def test_a_vote_must_say_whether_it_is_one() -> None:
    codec, context = make("signsgd"), contexts(EIGHT, None, 1)[0]
    payload = codec.encode(_random(8), context)
    payload[0] = 2
    with pytest.raises(PayloadError, match="first byte must be 0 or 1, found 2"):
        codec.decode(payload, torch.empty(8), context)
    with pytest.raises(NonFiniteError, match="signs alone"):
        codec.encode(torch.tensor([1.0, torch.inf]), context)
    huge = torch.full((8,), 3e38)  # whose sum overflows
    assert torch.equal(_decoded(codec, huge), torch.ones(8))


@pytest.mark.parametrize("name", ["signsgd", "signum"])
def test_votes_refuse_feedback_and_say_why(name: str) -> None:
    (fault,) = make(name, feedback="on").validate(4)
    assert "is a vote without magnitude" in fault
    assert not list(make(name).validate(4))


def test_votes_take_the_optimizer_and_leave_its_weight_decay() -> None:
    parameter = torch.nn.Parameter(torch.zeros(2))
    given = torch.optim.SGD([parameter], lr=0.5, momentum=0.9, nesterov=True, weight_decay=0.1)
    for rate, expected in ((0.25, 0.25), (None, 0.5)):
        optimizer = make("signsgd", learning_rate=rate).adopt(given)
        (group,) = optimizer.param_groups
        assert (group["lr"], group["momentum"], group["weight_decay"]) == (expected, 0.0, 0.1)
        assert group["params"] == [parameter]


def test_signum_votes_with_its_momentum() -> None:
    layout, rank = Layout(((2,),)), make("signum", momentum=0.5)
    steps = [torch.tensor([4.0, -1.0]), torch.tensor([-1.0, -1.0]), torch.tensor([-2.0, -1.0])]
    found = []
    for step, given in enumerate(steps):  # momenta 2, 0.5, -0.75
        means, _, _ = reduce_all([rank], [given], layout, Route.OWN, step=step)
        found.append(means[0].tolist())
    assert found == [[1.0, -1.0], [1.0, -1.0], [-1.0, -1.0]]


def test_signum_takes_the_momentum_of_sgd_if_it_has_none() -> None:
    parameters = [torch.nn.Parameter(torch.zeros(2))]
    codec = make("signum", momentum=None)
    codec.adopt(torch.optim.SGD(parameters, lr=0.1, momentum=0.75))
    assert isinstance(codec, Signum) and codec.momentum == 0.75
    with pytest.raises(ValueError, match="found Adam without one"):
        make("signum", momentum=None).adopt(torch.optim.Adam(parameters))


def test_bad_parameters_are_named_all_at_once() -> None:
    with pytest.raises(ValueError, match=r"^momentum=1: must be in \[0, 1\), or null\nlearning_rate=0: must be"):
        make("signum", momentum=1, learning_rate=0)
    for name in ("onebit", "efsignsgd"):
        for size in (0, 12, 8.0, True, 2**20 + 8):
            with pytest.raises(ValueError, match=r"block_size=.*: must be a multiple of 8"):
                make(name, block_size=size)
