"""What the members promise that are C libraries, beyond the laws of all."""

from __future__ import annotations

import math

import pytest
import torch

from compressors.base.compressor import Context, Layout
from compressors.base.payload import NonFiniteError
from compressors.blosc2 import CODECS, SHUFFLES, Blosc2
from compressors.int8 import Int8
from compressors.none import Uncompressed
from compressors.topk import TopK
from compressors.zfp import ZFP
from compressors.zstd import Zstd
from tests.contract.catalogue import make
from tests.contract.lockstep import contexts


def _context(numel: int) -> Context:
    return contexts(Layout(((numel,),)), None, 1)[0]


def _values(numel: int, power: int = 3) -> torch.Tensor:
    return torch.randn(numel, generator=torch.Generator().manual_seed(numel)).pow(power)


def _round_trip(codec: Blosc2 | ZFP | Zstd, tensor: torch.Tensor) -> tuple[torch.Tensor, int]:
    payload, out = codec.encode(tensor, _context(len(tensor))), torch.full_like(tensor, 7.0)
    codec.decode(payload, out, _context(len(tensor)))
    return out, len(payload)


LOSSLESS = [
    *(Zstd(inner=Uncompressed(), level=level, shuffle=shuffle) for level in (1, 19) for shuffle in (1, 2, 4, 8)),
    *(Blosc2(codec=codec, shuffle=shuffle) for codec in CODECS for shuffle in SHUFFLES),
    Blosc2(level=9),
]


@pytest.mark.parametrize("codec", LOSSLESS, ids=[f"{type(c).__name__}-{n}" for n, c in enumerate(LOSSLESS)])
def test_the_lossless_carry_every_bit(codec: Blosc2 | Zstd) -> None:
    strange = torch.tensor([math.nan, math.inf, -math.inf, -0.0, 0.0, 1e-45, -3e38, 0x7F8ABCDE / 1.0])
    strange[0:1].view(torch.int32).fill_(0x7FC12345)  # a NaN with bits of its own
    for tensor in (strange, _values(5003), torch.full((4001,), -0.0), strange.repeat(700), torch.empty(0)):
        out, size = _round_trip(codec, tensor)
        assert torch.equal(out.view(torch.int32), tensor.view(torch.int32))
        assert size <= 4 * len(tensor) + 28


def test_a_wrapped_payload_decodes_as_it_would_alone() -> None:
    tensor, context = _values(5000), _context(5000)
    for inner in (Int8(), TopK(density=0.1)):
        alone, wrapped = torch.empty(5000), torch.empty(5000)
        plain = inner.encode(tensor, context)
        inner.decode(plain, alone, context)
        codec = Zstd(inner=inner)
        payload = codec.encode(tensor, context)
        codec.decode(payload, wrapped, context)
        assert torch.equal(alone, wrapped)
        assert codec.traits.contraction == inner.traits.contraction
        assert codec.traits.feedback == inner.traits.feedback
    assert len(make("int8_zstd").encode(tensor, context)) < 0.75 * len(Int8().encode(tensor, context))


def test_the_byte_shuffle_shortens_float32() -> None:
    tensor = _values(1 << 17)
    assert _round_trip(make("zstd"), tensor)[1] < 0.95 * _round_trip(Zstd(inner=Uncompressed()), tensor)[1]  # type: ignore[arg-type]


@pytest.mark.parametrize("bound", [0.001, 0.01, 0.3, 1.0, 4.0])
@pytest.mark.parametrize("scale", [1e-30, 1.0, 1e30])
def test_zfp_keeps_its_bound(bound: float, scale: float) -> None:
    tensor = _values(5003) * scale
    out, size = _round_trip(ZFP(error_bound=bound), tensor)
    rms = float(tensor.double().square().mean().sqrt())
    assert float((out - tensor).abs().max()) <= bound * rms * 1.0001
    assert size < (4 * 5003 * 0.6 if bound * rms > 1e-27 else 4 * 5003 + 29)


@pytest.mark.parametrize("numel", [1, 3, 4, 5, 63, 64, 5003])
@pytest.mark.parametrize("rate", [6, 6.25, 8.0, 13.5, 32])
def test_zfp_of_a_fixed_rate_has_a_fixed_size(numel: int, rate: float) -> None:
    codec = ZFP(mode="rate", rate=rate)
    assert codec.traits.fixed_size
    for tensor in (torch.zeros(numel), _values(numel), torch.full((numel,), 3e38)):
        out, size = _round_trip(codec, tensor)
        assert size == codec.payload_bytes(Layout(((numel,),)), _context(numel))
        assert out.any() == tensor.any()


@pytest.mark.parametrize("params", [{"error_bound": 0.03}, {"mode": "precision", "precision": 9}])
def test_zfp_plans_about_what_it_sends(params: dict[str, object]) -> None:
    codec = make("zfp", **params)
    for power in (1, 3):
        size = len(codec.encode(_values(50_000, power), _context(50_000)))
        assert size == pytest.approx(codec.payload_bytes(Layout(((50_000,),)), _context(50_000)), rel=0.2)


def test_zfp_is_nearer_with_more_planes_and_bits() -> None:
    tensor = _values(5003)

    def lost(**params: object) -> float:
        out, _ = _round_trip(ZFP(**params), tensor)  # type: ignore[arg-type]
        return float((out - tensor).square().sum() / tensor.square().sum())

    for several in (
        [lost(mode="precision", precision=p) for p in (4, 6, 9, 32)],
        [lost(mode="rate", rate=r) for r in (6, 8, 16)],
    ):
        assert several == sorted(several, reverse=True)
        assert several[0] < 1 and several[-1] < 1e-6


@pytest.mark.parametrize("mode", ["accuracy", "precision", "rate"])
@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_zfp_refuses_what_is_not_finite(mode: str, bad: float) -> None:
    with pytest.raises(NonFiniteError, match=r"^zfp: the bucket holds NaN"):
        ZFP(mode=mode).encode(torch.tensor([1.0, bad, 2.0]), _context(3))


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: Zstd(inner=make("sz3")), r"^inner=SZ3: must have payloads of a fixed size"),
        (lambda: Zstd(inner=make("powersgd"), level=0), r"(?s)^inner=PowerSGD: .*\nlevel=0: .* at most 19$"),
        (
            lambda: Zstd(inner=Int8(), level=True, shuffle=3),
            r"(?s)^level=True: .*\nshuffle=3: unknown; known: 1, 2, 4, 8$",
        ),
        (lambda: Zstd(inner="int8", level=0), r"^inner=int8: must be a compressor, given as .*\nlevel=0: "),  # type: ignore[arg-type]
        (lambda: Zstd(inner=Int8(feedback="on")), r"^inner.feedback=on: must be auto; the feedback of Zstd counts$"),
        (
            lambda: Blosc2(codec="zip", shuffle="x", level=0),
            r"(?s)^codec=zip: unknown; .*\nshuffle=x: unknown; .*\nlevel=0: must be .* and at most 9$",
        ),
        (
            lambda: ZFP(mode="m", error_bound=0, precision=3, rate=6.1),
            r"(?s)^mode=m: unknown; .*\nerror_bound=0: .*\nprecision=3: .*\nrate=6.1: must be .* a multiple of 0.25$",
        ),
        (lambda: ZFP(error_bound=math.nan, rate=math.nan), r"(?s)^error_bound=nan: .*\nrate=nan: "),
    ],
)
def test_all_faults_are_named_at_once(build: object, message: str) -> None:
    assert callable(build)
    with pytest.raises(ValueError, match=message):
        build()
