from __future__ import annotations

from typing import Any

import pytest
import torch

from compressors.base.compressor import Compressor, Context, Layout, Route, Traits, choose_route, part_layouts
from compressors.base.payload import from_bytes, put, to_bytes
from compressors.int8 import Int8
from compressors.none import Uncompressed
from compressors.powersgd import PowerSGD
from compressors.sz3 import SZ3
from compressors.topk import TopK
from tests.contract.lockstep import reduce_all

LARGE = Layout(((1000, 1000),))
FAST, SLOW = 8e-9, 8e-6


def _context(**given: Any) -> Context:
    fields = {"seed": 0, "step": 0, "rank": 0, "world_size": 2} | given
    return Context(layout=Layout(((4,),), bucket=given.get("part", 0)), route=Route.GATHER, **fields)


def test_linear_payloads_are_summed_on_their_way() -> None:
    assert choose_route(Uncompressed(), LARGE, 8, alpha_s=1, beta_s_byte=FAST) is Route.REDUCE_SUM


def test_others_are_gathered_where_latency_counts_and_sent_in_two_shots_where_bytes_do() -> None:
    assert choose_route(Int8(), LARGE, 8, alpha_s=1, beta_s_byte=FAST) is Route.GATHER
    assert choose_route(Int8(), LARGE, 8, alpha_s=1e-4, beta_s_byte=SLOW) is Route.TWO_SHOT
    assert choose_route(Int8(), Layout(((5,),)), 8, alpha_s=0, beta_s_byte=SLOW) is Route.GATHER


def test_a_codec_that_needs_the_whole_bucket_is_gathered_and_own_rounds_go_their_own_way() -> None:
    whole = Int8()
    whole.traits = Traits(chunkable=False)
    assert choose_route(whole, LARGE, 8, alpha_s=1e-4, beta_s_byte=SLOW) is Route.GATHER
    assert choose_route(PowerSGD(), LARGE, 8, alpha_s=1e-4, beta_s_byte=SLOW) is Route.OWN


def test_the_question_for_sizes_is_in_the_cost_of_a_route() -> None:
    asking = Int8()
    asking.traits = Traits(fixed_size=False)
    # Two shots save so many byte times, for one message more, or for two where a size is asked for.
    saved_s = (7 - 2 * 7 / 8) * Int8().payload_bytes(LARGE, _context()) * FAST
    assert choose_route(Int8(), LARGE, 8, alpha_s=0.8 * saved_s, beta_s_byte=FAST) is Route.TWO_SHOT
    assert choose_route(asking, LARGE, 8, alpha_s=0.8 * saved_s, beta_s_byte=FAST) is Route.GATHER


def test_routes_and_sizes_may_change_from_step_to_step() -> None:
    class WarmUp(Int8):
        def payload_bytes(self, layout: Layout, context: Context) -> int:
            return 4 * layout.numel if context.step < 3 else super().payload_bytes(layout, context)

    chosen = [choose_route(WarmUp(), LARGE, 8, alpha_s=0.1, beta_s_byte=FAST, step=step) for step in (2, 3)]
    assert chosen == [Route.TWO_SHOT, Route.GATHER]
    sent = [WarmUp().sent_bytes(LARGE, 2, Route.GATHER, step=step) for step in (2, 3)]
    assert sent[0] == 2 * 4_000_000 > 3 * sent[1]


class Pick(Compressor):
    """Half of the entries; where they lie follows from the encoder's context and does not travel."""

    def __init__(self, *, shared: bool) -> None:
        super().__init__()
        self.shared = shared
        self.traits = Traits(sum_dtype=torch.float32 if shared else None, unbiased=True)

    def payload_bytes(self, layout: Layout, context: Context) -> int:
        return 4 * (layout.numel // 2)

    def encode(self, tensor: torch.Tensor, context: Context) -> torch.Tensor:
        return to_bytes(2 * tensor[self._picked(context)])

    def decode(
        self, payload: torch.Tensor, out: torch.Tensor, context: Context, *, add: bool = False, scale: float = 1.0
    ) -> None:
        dense = torch.zeros(len(out))
        dense[self._picked(context)] = from_bytes(payload, torch.float32)
        put(out, dense, add, scale)

    def _picked(self, context: Context) -> torch.Tensor:
        numel = context.layout.numel
        return torch.randperm(numel, generator=context.generator("pick", shared=self.shared))[: numel // 2]


def test_a_codec_of_shared_random_numbers_decodes_a_sum() -> None:
    layout, tensors = Layout(((8,),)), [torch.arange(8.0), torch.ones(8)]
    means, _, sent = reduce_all([Pick(shared=True), Pick(shared=True)], tensors, layout, Route.REDUCE_SUM, step=3)
    expected = torch.arange(8.0) + 1
    assert torch.equal(means[0], torch.where(means[0] != 0, expected, 0.0))
    assert int((means[0] != 0).sum()) == 4
    assert sent == Pick(shared=True).sent_bytes(layout, 2, Route.REDUCE_SUM)


@pytest.mark.parametrize("route", [Route.GATHER, Route.TWO_SHOT])
def test_a_payload_is_decoded_with_the_context_of_the_rank_that_sent_it(route: Route) -> None:
    tensors = [torch.arange(1.0, 31.0) * 2**rank for rank in range(3)]
    means, errors, _ = reduce_all([Pick(shared=False) for _ in tensors], tensors, Layout(((30,),)), route)
    contributed = torch.stack([t - e for t, e in zip(tensors, errors, strict=True)]).mean(dim=0)
    assert torch.allclose(means[0], contributed, atol=1e-4)


@pytest.mark.parametrize("key", ["seed", "step", "rank", "part", "stream"])
def test_random_numbers_depend_on_the_key_and_on_nothing_else(key: str) -> None:
    def draw(context: Context, purpose: str = "x", shared: bool = False) -> list[float]:
        return torch.rand(4, generator=context.generator(purpose, shared=shared)).tolist()

    assert draw(_context()) == draw(_context())
    assert draw(_context()) != draw(_context(**{key: 1}))
    assert draw(_context()) != draw(_context(), purpose="y")
    if key == "rank":
        assert draw(_context(), shared=True) == draw(_context(rank=1), shared=True)


def _parts(numel: int) -> list[int]:
    return [part.numel for part in part_layouts(Layout(((numel,),)), 4)]


def test_parts_are_equal_within_one_and_cover() -> None:
    assert _parts(10) == [3, 3, 2, 2]
    assert _parts(4) == [1, 1, 1, 1]


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
    codec.decode(payload, out, context)
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
    assert _round_trip(SZ3(), torch.zeros(20_000))[1] == 28


def test_powersgd_is_exact_on_a_matrix_of_its_rank() -> None:
    generator = torch.Generator().manual_seed(0)
    matrix = torch.randn(40, 2, generator=generator) @ torch.randn(2, 30, generator=generator)
    layout = Layout(((40, 30),))
    context = Context(layout=layout, route=Route.OWN, seed=0, step=0, rank=0, world_size=1)
    out = torch.empty(1200)
    rounds = PowerSGD(rank=2).rounds(matrix.view(-1), context, out=out)
    exchange = next(rounds)
    assert exchange.data[0].numel() == 40 * 2
    exchange = rounds.send(list(exchange.data))
    assert exchange.data[0].numel() == 30 * 2
    with pytest.raises(StopIteration):
        rounds.send(list(exchange.data))
    assert torch.allclose(out, matrix.view(-1), atol=1e-4)
