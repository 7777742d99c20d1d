from __future__ import annotations

import pytest
import torch

from compressors.base import Compressor, Context, Layout, Route, Traits, choose_route, part_numels
from compressors.int8 import Int8
from compressors.none import Uncompressed
from compressors.payload import from_bytes, to_bytes
from compressors.powersgd import PowerSGD
from compressors.sz3 import SZ3
from compressors.topk import TopK

LARGE = Layout(((1000, 1000),))
FAST, SLOW = 8e-9, 8e-6


def _context(**given: int) -> Context:
    fields = {"seed": 0, "step": 0, "rank": 0, "world_size": 2} | given
    return Context(layout=Layout(((4,),), bucket=given.get("part", 0)), route=Route.GATHER, **fields)


def test_linear_payloads_are_summed_on_their_way() -> None:
    assert choose_route(Uncompressed(), LARGE, 8, alpha_s=1, beta_s_byte=FAST) is Route.REDUCE_SUM


def test_others_are_gathered_where_latency_counts_and_sent_in_two_shots_where_bytes_do() -> None:
    assert choose_route(Int8(), LARGE, 8, alpha_s=1, beta_s_byte=FAST) is Route.GATHER
    assert choose_route(Int8(), LARGE, 8, alpha_s=1e-4, beta_s_byte=SLOW) is Route.TWO_SHOT
    assert choose_route(Int8(), Layout(((5,),)), 8, alpha_s=0, beta_s_byte=SLOW) is Route.GATHER


def test_a_sum_that_could_overflow_is_refused() -> None:
    class Narrow(Uncompressed):
        traits = Traits(linear=True, reduce_dtype=torch.int8, max_world=4)

    assert choose_route(Narrow(), LARGE, 4, alpha_s=0, beta_s_byte=FAST) is Route.REDUCE_SUM
    with pytest.raises(ValueError, match="workers=5: Narrow payloads of at most 4 ranks"):
        choose_route(Narrow(), LARGE, 5, alpha_s=0, beta_s_byte=FAST)


@pytest.mark.parametrize("key", ["seed", "step", "rank", "part"])
def test_random_numbers_depend_on_the_key_and_on_nothing_else(key: str) -> None:
    def draw(context: Context, purpose: str = "x", shared: bool = False) -> list[float]:
        return torch.rand(4, generator=context.generator(purpose, shared=shared)).tolist()

    assert draw(_context()) == draw(_context())
    assert draw(_context()) != draw(_context(**{key: 1}))
    assert draw(_context()) != draw(_context(), purpose="y")
    if key == "rank":
        assert draw(_context(), shared=True) == draw(_context(rank=1), shared=True)


def test_parts_are_equal_within_one_and_cover() -> None:
    assert part_numels(10, 4) == [3, 3, 2, 2]
    assert part_numels(4, 4) == [1, 1, 1, 1]


def test_bytes_and_back_at_any_offset() -> None:
    values = torch.tensor([1.5, -2.0])
    shifted = torch.cat([torch.zeros(3, dtype=torch.uint8), to_bytes(values)])[3:]
    assert torch.equal(from_bytes(shifted, torch.float32), values)


@pytest.mark.parametrize(
    ("build", "fault"),
    [
        (lambda: TopK(density=2), r"^density=2: must be in \(0, 1\]$"),
        (lambda: TopK(density=0), r"^density=0: must be in \(0, 1\]$"),
        (lambda: TopK(density="much"), r"^density=much: must be in \(0, 1\]$"),  # type: ignore[arg-type]
        (lambda: TopK(density=float("nan")), r"^density=nan: "),
        (lambda: PowerSGD(rank=0), r"^rank=0: must be a whole number, at least 1$"),
        (lambda: Int8(block_size=0), r"^block_size=0: "),
        (lambda: SZ3(error_bound=-1, algorithm="zip"), r"(?s)^error_bound=-1: .*\nalgorithm=zip: unknown; known: "),
    ],
)
def test_bad_parameters_are_refused_with_what_is_possible(build: object, fault: str) -> None:
    assert callable(build)
    with pytest.raises(ValueError, match=fault):
        build()


def _round_trip(codec: Compressor, tensor: torch.Tensor) -> tuple[torch.Tensor, int]:
    layout = Layout(((tensor.numel(),),))
    context = Context(layout=layout, route=Route.GATHER, seed=0, step=0, rank=0, world_size=1)
    payload = codec.encode(tensor, context)
    out = torch.empty_like(tensor)
    codec.decode(payload, out)
    return out, len(payload)


def test_topk_keeps_the_largest() -> None:
    out, size = _round_trip(TopK(density=0.3), torch.tensor([0.1, -9.0, 3.0, 0.0, 0.5, 4.0, 0.2, 0.3, 0.4, 0.6]))
    assert torch.equal(out, torch.tensor([0, -9.0, 3.0, 0, 0, 4.0, 0, 0, 0, 0]))
    assert size == 24


def test_int8_is_off_by_half_a_level_at_most() -> None:
    tensor = torch.randn(1000, generator=torch.Generator().manual_seed(0)) * torch.logspace(-30, 30, 1000)
    out, size = _round_trip(Int8(block_size=64), tensor)
    assert size == 1000 + 4 * 16
    for block, decoded in zip(tensor.split(64), out.split(64), strict=True):
        assert (block - decoded).abs().max() <= block.abs().max() / 254 * 1.001


@pytest.mark.parametrize("algorithm", ["nopred", "interp_lorenzo"])
def test_sz3_keeps_its_bound(algorithm: str) -> None:
    tensor = torch.randn(20_000, generator=torch.Generator().manual_seed(0)).pow(3)
    out, size = _round_trip(SZ3(error_bound=0.1, algorithm=algorithm), tensor)
    assert (tensor - out).abs().max() <= 0.1 * tensor.square().mean().sqrt() * 1.0001
    assert size < 4 * 20_000 / 3
    assert _round_trip(SZ3(), torch.zeros(20_000))[1] == 17


def test_powersgd_is_exact_on_a_matrix_of_its_rank() -> None:
    generator = torch.Generator().manual_seed(0)
    matrix = torch.randn(40, 2, generator=generator) @ torch.randn(2, 30, generator=generator)
    layout = Layout(((40, 30),))
    context = Context(layout=layout, route=Route.REDUCE_SUM, seed=0, step=0, rank=0, world_size=1)
    out = torch.empty(1200)
    rounds = PowerSGD(rank=2).rounds(matrix.view(-1), context, out=out)
    exchange = next(rounds)
    assert exchange.data[0].numel() == 40 * 2
    exchange = rounds.send(list(exchange.data))
    assert exchange.data[0].numel() == 30 * 2
    with pytest.raises(StopIteration):
        rounds.send(list(exchange.data))
    assert torch.allclose(out, matrix.view(-1), atol=1e-4)
