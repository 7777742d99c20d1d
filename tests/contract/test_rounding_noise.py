"""What becomes of the noise of rounding: over ranks, over seeds, at any scale, in short buckets, in sums of squares."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from compressors.base.compressor import Compressor, Context, Layout, Route, choose_route
from tests.contract.catalogue import CODECS, NAMES, make, routes
from tests.contract.lockstep import contexts, reduce_all

TOO_MUCH = 0.1
"""Of the energy: what a mean that is encoded again may lose."""


def _random(seed: int, numel: int) -> Tensor:
    return torch.randn(numel, generator=torch.Generator().manual_seed(seed))


def _carried(codec: Compressor, tensor: Tensor, seed: int = 0) -> Tensor:
    context = contexts(Layout(((tensor.numel(),),)), None, 1, seed=seed)[0]
    out = torch.full((tensor.numel(),), torch.nan)
    codec.decode(codec.encode(tensor, context), out, context)
    return out


UNBIASED: list[tuple[str, dict[str, Any]]] = [
    *((name, {}) for name in CODECS if make(name).traits.unbiased and make(name).traits.feedback == "harmful"),
    ("qsgd", {"levels": 1}),
    ("qsgd", {"levels": 7}),
    ("qsgd", {"levels": 40}),
    ("qsgd", {"levels": 127, "bucket_size": 2**16}),
    ("eden", {"bits": 1}),
    ("eden", {"bits": 2}),
]


@pytest.mark.parametrize(("name", "params"), UNBIASED)
def test_means_over_ranks_are_as_near_as_one_encoding_of_them(name: str, params: dict[str, Any]) -> None:
    """Ranks with like gradients: what each loses averages out; what the mean loses, encoded again, is lost to all."""
    tensor, layout, world_size = _random(0, 2**14), Layout(((2**14,),)), 16
    codec = make(name, **params)
    one = float((_carried(codec, tensor) - tensor).square().sum() / tensor.square().sum())
    route = choose_route(codec, layout, world_size, alpha_s=0.0, beta_s_byte=1e-8)
    assert route in routes(codec)
    ranks = [make(name, **params) for _ in range(world_size)]
    means, _, _ = reduce_all(ranks, [tensor] * world_size, layout, route)
    lost = float((means[0] - tensor).square().sum() / tensor.square().sum())
    assert lost < one / world_size * 1.2 + (TOO_MUCH if one < TOO_MUCH else 0.0), f"one encoding loses {one:.3g}"


def test_fine_levels_are_averaged_in_two_shots() -> None:
    for codec in (make("qsgd"), make("eden")):
        assert choose_route(codec, Layout(((2**16,),)), 16, alpha_s=0.0, beta_s_byte=1e-8) is Route.TWO_SHOT


@pytest.mark.parametrize("scale", [2.0**-10, 2.0**10])
@pytest.mark.parametrize("name", [name for name in NAMES if make(name).traits.averages])
def test_small_and_large_gradients_lose_the_same_share(name: str, scale: float) -> None:
    """Whether feedback is needed must not hang on the units of the loss."""
    tensor, layout = _random(0, 20_000), Layout(((100, 200),))
    route, lost = routes(make(name))[0], []
    for factor in (1.0, scale):
        _, (error,), _ = reduce_all([make(name)], [tensor * factor], layout, route)
        lost.append(float((error.double() / factor).square().sum() / tensor.double().square().sum()))
    assert lost[1] == pytest.approx(lost[0], rel=0.1, abs=1e-6)


@pytest.mark.tier("all")
@pytest.mark.parametrize("bits", [1, 2, 4])
@pytest.mark.parametrize("numel", range(1, 17))
def test_eden_is_unbiased_in_tensors_of_any_size(bits: int, numel: int) -> None:
    """A block of few entries has few rotations."""
    codec, draws = make("eden", bits=bits), 500
    tensor = _random(numel, numel)
    total, energy = torch.zeros(numel, dtype=torch.float64), 0.0
    for seed in range(draws):
        found = _carried(codec, tensor, seed).double()
        total += found
        energy += float((found - tensor).square().sum())
    off = float((total / draws - tensor).square().sum())
    # chance leaves this much on average, whatever the size; a tenth of the norm was left with 8 entries
    assert off <= 4 * energy / draws**2 + 1e-12


@pytest.mark.parametrize("block_size", [16, 1024])
def test_eden_sends_what_is_small_as_it_is(block_size: int) -> None:
    codec = make("eden", bits=1, block_size=block_size)
    for numel in range(18):
        layout, tensor = Layout(((numel,),)), _random(1, numel)
        payload = codec.encode(tensor, contexts(layout, None, 1)[0])
        assert len(payload) == codec.payload_bytes(layout, contexts(layout, None, 1)[0])
        assert len(payload) == (4 * numel if numel <= 8 else 4 + 2 if numel <= 16 else len(payload))
        if numel <= 8:
            assert torch.equal(_carried(codec, tensor), tensor)
    with pytest.raises(ValueError, match=r"^block_size=8: must be"):
        make("eden", block_size=8)


@pytest.mark.parametrize("numel", [1, 7, 511, 513, 65536 + 1, 65536 + 300])
def test_terngrad_clips_a_short_bucket_by_its_own_values(numel: int) -> None:
    # one more than the bucket's root mean square, so that none is clipped at 2.5 times that
    tensor = torch.where(_random(0, numel) < 0, -1.0, 1.0)
    assert torch.equal(_carried(make("terngrad", clip_sigmas=2.5), tensor), tensor)
    spiky = tensor.clone()
    spiky[-1] = 100.0
    last = spiky[(numel - 1) // 512 * 512 :]
    limit = 2.5 * float(last.square().mean().sqrt())
    largest = float(_carried(make("terngrad", clip_sigmas=2.5), spiky)[-1])
    assert largest == pytest.approx(min(limit, 100.0), rel=1e-6)


class _Sums:
    """A rank whose second exchange comes to what is given."""

    def __init__(self, dtype: str) -> None:
        self.codec = make("intsgd", dtype=dtype, beta=0.0)

    def energy(self, total: Tensor) -> float:
        context = Context(layout=Layout(((total.numel(),),)), route=Route.OWN, seed=0, step=0, rank=0, world_size=2)
        out = torch.empty(total.numel())
        rounds = self.codec.rounds(torch.ones(total.numel()), context, out=out)
        next(rounds)
        rounds.send([torch.tensor([1.0])])
        with pytest.raises(StopIteration):
            rounds.send([total])
        (found,) = self.codec.state_dict().values()
        return float(found)


@pytest.mark.parametrize(("dtype", "largest", "steps"), [("int8", 127, 63), ("int32", 2**31 - 1, 2**15)])
def test_intsgd_sums_squares_exactly_in_any_order(dtype: str, largest: int, steps: int) -> None:
    """Ranks add with other threads or devices, and a last bit of r that differs gives them different scales."""
    generator = torch.Generator().manual_seed(0)
    total = torch.randint(-largest - 1, largest + 1, (150_001,), generator=generator).to(getattr(torch, dtype))
    total[:2] = torch.tensor([largest, -largest - 1])
    exact = sum(value * value for value in total.tolist()) / (2 * steps) ** 2
    orders = (total, total.flip(0), total.sort().values, total[torch.randperm(len(total), generator=generator)])
    for order in orders:
        assert _Sums(dtype).energy(order.contiguous()) == exact
