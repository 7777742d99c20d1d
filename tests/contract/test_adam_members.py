"""Compressors that are Adam themselves: what they are without compression, what they send when, what they owe."""

from __future__ import annotations

import math

import pytest
import torch

from compressors.base.compressor import Layout, Route
from compressors.parts.sign_mean import SignMean, moved_mean
from compressors.zeroone_adam import ZeroOneAdam
from tests.contract.catalogue import make
from tests.contract.lockstep import contexts, drive, reduce_all

SHAPES = ((12, 10), (7,))
LAYOUT = Layout(SHAPES)
MEMBERS = ("onebit_adam", "zeroone_adam")


def _random(seed: int, numel: int = LAYOUT.numel) -> torch.Tensor:
    return torch.randn(numel, generator=torch.Generator().manual_seed(seed)).pow(3)


@pytest.mark.parametrize(
    ("name", "params"),
    [
        ("onebit_adam", {"warm_up_steps": 20}),
        ("zeroone_adam", {"variance_renewals": 20, "freeze_step": 20}),
    ],
)
@pytest.mark.parametrize("world_size", [1, 3])
def test_until_signs_are_sent_it_is_adam(name: str, params: dict[str, int], world_size: int) -> None:
    ranks = [make(name, learning_rate=0.01, beta1=0.8, beta2=0.99, eps=1e-6, **params) for _ in range(world_size)]
    ours, theirs = (torch.nn.Parameter(torch.ones(LAYOUT.numel, dtype=torch.float32)) for _ in range(2))
    plain = ranks[0].adopt(torch.optim.SGD([ours], lr=7.0, momentum=0.9, nesterov=True))
    adam = torch.optim.Adam([theirs], lr=0.01, betas=(0.8, 0.99), eps=1e-6)
    for step in range(20):
        tensors = [_random(step * world_size + rank) for rank in range(world_size)]
        means, _, _ = reduce_all(ranks, tensors, LAYOUT, Route.OWN, step=step)
        ours.grad, theirs.grad = means[0], torch.stack(tensors).mean(dim=0)
        plain.step()
        adam.step()
    assert torch.allclose(ours, theirs, rtol=0, atol=2e-6)
    assert float((ours.detach() - 1).abs().max()) > 0.02  # they did move


@pytest.mark.parametrize("world_size", [1, 2, 3, 4])
def test_sign_means_owe_what_they_have_not_paid(world_size: int) -> None:
    """Over any number of steps, what came in is what came out and the residuals of ranks and parts."""
    layout = Layout(((203,),), 0, ("all",))
    ranks = [SignMean(64, "test") for _ in range(world_size)]
    given, paid = torch.zeros(203, dtype=torch.float64), torch.zeros(203, dtype=torch.float64)
    for step in range(5):
        tensors = [_random(10 * step + rank, 203) for rank in range(world_size)]
        outs = [torch.empty(203) for _ in ranks]
        sent = drive(
            [
                r.rounds(t, c, out)
                for r, t, c, out in zip(
                    ranks, tensors, contexts(layout, Route.OWN, world_size, step=step), outs, strict=True
                )
            ]
        )
        assert sent == ranks[0].sent_bytes(layout, world_size)
        assert all(torch.equal(out, outs[0]) for out in outs)
        given += torch.stack(tensors).double().mean(dim=0)
        paid += outs[0].double()
    assert float((given - paid).norm()) > 0.1 * float(given.norm())  # much is owed
    owed = torch.stack([moved_mean(r.state_dict(), [layout], [layout])["ours"]["0/0/"] for r in ranks]).mean(dim=0)
    assert torch.allclose(paid + owed.double(), given, atol=1e-4)


def test_onebit_adam_sends_gradients_and_then_signs() -> None:
    codec = make("onebit_adam", warm_up_steps=3)
    sizes = [codec.sent_bytes(LAYOUT, 2, Route.OWN, step=step) for step in range(5)]
    signs = 2 * (4 + math.ceil(LAYOUT.numel / 8))
    assert sizes == [8 * LAYOUT.numel] * 3 + [signs] * 2
    ranks = [make("onebit_adam", warm_up_steps=3) for _ in range(2)]
    for step, size in enumerate(sizes):
        tensors = [_random(2 * step), _random(2 * step + 1)]
        assert reduce_all(ranks, tensors, LAYOUT, Route.OWN, step=step)[2] == size


def test_onebit_adam_keeps_its_variance_and_one_block_has_one_step() -> None:
    """With one rank and one block, m is C(b1 m + (1 - b1) g + r), and out is that over the frozen root of v."""
    layout = Layout(((8,),))
    rank = make("onebit_adam", warm_up_steps=1, beta1=0.5, beta2=0.5, eps=1e-12, floor=0.001)
    first, second = _random(1, 8).abs() + 1, _random(2, 8).abs() + 1
    reduce_all([rank], [first], layout, Route.OWN, step=0)
    means, _, _ = reduce_all([rank], [second], layout, Route.OWN, step=1)
    momentum = 0.25 * first + 0.5 * second  # all above zero, so each is read as their mean
    expected = momentum.mean() / (1 - 0.5**2) / first
    assert torch.allclose(means[0], expected, rtol=1e-5)
    residual = rank.state_dict()["mean"]["ours"]["0/0/"]
    assert torch.allclose(residual, momentum - momentum.mean(), atol=1e-6)


@pytest.mark.parametrize("name", MEMBERS)
def test_a_parameter_without_gradients_is_not_thrown_away(name: str) -> None:
    """A block's one magnitude says that it has some momentum; its own variance says next to none."""
    params = {"warm_up_steps": 4} if name == "onebit_adam" else {"variance_renewals": 2, "freeze_step": 8}
    ranks = [make(name, **params) for _ in range(2)]
    largest = 0.0
    for step in range(40):
        tensors = [_random(2 * step), _random(2 * step + 1)]
        for tensor in tensors:
            tensor[5:9] = 0.0
        means, _, _ = reduce_all(ranks, tensors, LAYOUT, Route.OWN, step=step)
        largest = max(largest, float(means[0].abs().max()))
    assert largest < 100


def test_zeroone_adam_renews_its_variance_at_doubling_distances() -> None:
    codec = ZeroOneAdam(variance_renewals=3, freeze_step=24)
    renewed = [step for step in range(100) if codec.renews(step)]
    assert renewed == [0, 1, 2, 3, 5, 7, 9, 13, 17, 21]  # three of each distance, until it is frozen
    assert [codec.renewals(step) for step in (0, 2, 3, 4, 8, 9, 23, 99)] == [1, 3, 4, 4, 6, 7, 10, 10]


def test_zeroone_adam_skips_more_and_more_averages() -> None:
    codec = ZeroOneAdam(variance_renewals=2, freeze_step=4, interval_steps=6, longest_interval=4)
    counts = [codec.averaged(step) for step in range(4, 30)]
    assert counts == [1] * 6 + [0, 2] * 3 + [0, 0, 0, 4] * 3 + [0, 0]
    odd = ZeroOneAdam(variance_renewals=2, freeze_step=1, interval_steps=3, longest_interval=8)
    counts = [odd.averaged(step) for step in range(1, 40)]
    assert sum(counts) == 39 - (39 - 9) % 8  # no step is left out: a stretch ends with an average
    assert counts[:9] == [1, 1, 1, 0, 2, 1, 0, 0, 3]


@pytest.mark.parametrize("world_size", [2, 4])
def test_zeroone_adam_sends_nothing_between_averages_and_owes_it(world_size: int) -> None:
    layout = Layout(((64,),))
    params = {"variance_renewals": 1, "freeze_step": 1, "interval_steps": 2, "longest_interval": 4, "beta1": 0.0}
    ranks = [make("zeroone_adam", **params, eps=1e-12) for _ in range(world_size)]
    ones = [torch.ones(64)] * world_size
    outs, sizes = [], []
    for step in range(13):
        means, _, sent = reduce_all(ranks, ones, layout, Route.OWN, step=step)
        assert sent == ranks[0].sent_bytes(layout, world_size, Route.OWN, step=step)
        outs.append(float(means[0][0]))
        sizes.append(sent)
        assert (means[0] == means[0][0]).all()
    # Gradients of one and a variance of one: every step is worth one, at once or with the next average.
    assert outs == pytest.approx([1, 1, 1, 0, 2, 0, 0, 0, 4, 0, 0, 0, 4], rel=1e-5)
    assert [size > 0 for size in sizes] == [out > 0 for out in outs]


@pytest.mark.parametrize("name", MEMBERS)
def test_in_other_buckets_nothing_owed_is_lost(name: str) -> None:
    old = [Layout(((12, 10), (7,)), 0, ("wide", "bias"))]
    new = [Layout(((7,),), 0, ("bias",)), Layout(((12, 10),), 1, ("wide",))]
    params = {"warm_up_steps": 2} if name == "onebit_adam" else {"variance_renewals": 1, "freeze_step": 2}
    ranks = [make(name, **params) for _ in range(4)]
    for step in range(5):
        reduce_all(ranks, [_random(4 * step + rank) for rank in range(4)], old[0], Route.OWN, step=step)
    states = [rank.state_dict() for rank in ranks]
    moved = [rank.move_state(state, old, new) for rank, state in zip(ranks, states, strict=True)]
    servers = torch.cat([next(iter(state["mean"]["parts"].values())) for state in states])
    assert servers.any()
    mean = torch.stack([state["mean"]["ours"]["0/0/"] for state in states]).mean(dim=0)
    owed = [torch.stack([one["mean"]["ours"][key] for one in moved]).mean(dim=0) for key in ("1/0/", "0/0/")]
    assert torch.allclose(torch.cat(owed), mean + servers, atol=1e-6)
    for kind in ("momenta", "variances"):
        assert torch.equal(moved[0][kind]["0/0/"], states[0][kind]["0/0/"][120:])
        assert torch.equal(moved[0][kind]["1/0/"], states[0][kind]["0/0/"][:120])


@pytest.mark.parametrize("name", MEMBERS)
def test_feedback_is_refused_where_residuals_are_kept(name: str) -> None:
    (fault,) = make(name, feedback="on").validate(4)
    assert "keeps what it does not send by a rule of its own" in fault


def test_bad_parameters_are_named_all_at_once() -> None:
    with pytest.raises(ValueError, match=r"^freeze_step=0: ") as caught:
        make("zeroone_adam", longest_interval=3, freeze_step=0, beta1=1.0, eps=0, learning_rate=20, block_size=9)
    assert str(caught.value).splitlines() == [
        "freeze_step=0: must be a whole number, at least 1",
        "longest_interval=3: must be a power of two, at least 1",
        "learning_rate=20: must be above 0 and below 10, or null",
        "beta1=1.0: must be in [0, 1)",
        "eps=0: must be in (0, 1]",
        "block_size=9: must be a multiple of 8, at least 8 and at most 1048576",
    ]
    with pytest.raises(ValueError, match=r"^warm_up_steps=True: must be a whole number, at least 1$"):
        make("onebit_adam", warm_up_steps=True)
