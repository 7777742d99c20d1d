"""Random numbers by position: fair, without memory of neighbours, and the same however they are drawn."""

from __future__ import annotations

import torch

from compressors.base.streams import Stream
from compressors.parts.packing import WIDTHS, Packer, packed_bytes

N = 1 << 16


def test_any_stretch_can_be_drawn_by_itself() -> None:
    stream = Stream(0x123456789ABCDEF0)
    whole = stream.bits(0, 1000)
    assert torch.equal(stream.bits(300, 50), whole[300:350])
    assert torch.equal(stream.dither(600, 100), stream.dither(0, 1000)[600:700])
    assert stream.dither(0, 7).shape == (7,)
    assert not torch.equal(whole, Stream(0x123456789ABCDEF1).bits(0, 1000))
    assert not torch.equal(whole, Stream(0x023456789ABCDEF0).bits(0, 1000))


def test_every_bit_is_fair_and_tells_nothing_of_its_neighbours() -> None:
    for key in (0, 1, 2**64 - 1, 0x9E3779B97F4A7C15):
        bits = Stream(key).bits(0, N)
        planes = torch.stack([(bits >> j) & 1 for j in range(32)]).double() * 2 - 1
        limit = 5 / N**0.5  # five standard deviations
        assert planes.mean(dim=1).abs().max() < limit
        assert (planes[:, 1:] * planes[:, :-1]).mean(dim=1).abs().max() < limit
        between = planes @ planes.T / N - torch.eye(32, dtype=torch.float64)
        assert between.abs().max() < limit
        other = Stream((key + 1) % 2**64).bits(0, N)
        unlike = torch.stack([((bits ^ other) >> j) & 1 for j in range(32)]).double() * 2 - 1
        assert unlike.mean(dim=1).abs().max() < limit


def test_uniform_and_dither_fill_their_range_evenly() -> None:
    for draw in (Stream(5).uniform(0, N), Stream(5).dither(0, N)):
        assert float(draw.min()) >= 0 and float(draw.max()) < 1
        counts = torch.histc(draw, 64, 0, 1)
        chi_square = float(((counts - N / 64) ** 2 / (N / 64)).sum())
        assert 20 < chi_square < 130  # 63 degrees of freedom; beyond one in a million either way
    assert abs(float(Stream(5).signs(0, N).mean())) < 5 / N**0.5


def test_integers_are_below_their_limit_and_reach_everywhere() -> None:
    drawn = {Stream(key).integer(10) for key in range(200)}
    assert drawn == set(range(10))


def test_codes_come_back_and_take_their_bits() -> None:
    for bits in WIDTHS:
        for count in (0, 1, 7, 8, 9, 64, 1001, 2**19 + 3):
            codes = (Stream(bits).bits(0, count) & ((1 << bits) - 1)).to(torch.uint8)
            packer = Packer(count, bits)
            packed = packer.pack(codes)
            assert packed.numel() == packer.size_bytes == packed_bytes(count, bits) == -(-count * bits // 8)
            assert torch.equal(packer.unpack(packed), codes)
