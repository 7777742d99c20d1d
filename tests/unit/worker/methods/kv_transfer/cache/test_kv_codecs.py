"""Codecs of keys and values: bytes as stated, errors within bounds, and damaged messages refused."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from compressors.base.payload import NonFiniteError, PayloadError
from testbed.worker.methods.kv_transfer.cache.half_floats import half_above, half_below
from testbed.worker.methods.kv_transfer.cache.kv_codecs import CacheGen, Floats, Kivi, KVCodec, Part, Uniform

CODECS = {
    "fp32": Floats(bits=32),
    "fp16": Floats(),
    "int8_position": Uniform(bits=8),
    "int8_channel": Uniform(bits=8, along="channel"),
    "int4": Uniform(bits=4, group=8),
    "int4_short_groups": Uniform(bits=4, along="channel", group=7),
    "kivi": Kivi(group=8, residual=5),
    "cachegen": CacheGen(),
}


def _matrix(positions: int, channels: int, seed: int = 0) -> Tensor:
    """Some channels are large at all positions, as those of keys are, and neighbours are alike."""
    random = torch.Generator().manual_seed(seed)
    steps = torch.randn(positions, channels, generator=random).cumsum(dim=0)
    return steps * torch.logspace(-2, 2, channels)


@pytest.mark.parametrize("part", ["keys", "values"])
@pytest.mark.parametrize("positions", [0, 1, 5, 8, 61])
@pytest.mark.parametrize("name", CODECS)
def test_what_is_decoded_lies_within_the_bound_and_messages_have_the_stated_size(
    name: str, positions: int, part: Part
) -> None:
    codec = CODECS[name]
    for matrix in (_matrix(positions, 6), torch.zeros(positions, 6), torch.full((positions, 6), -0.1)):
        message = codec.encode(matrix, part)
        found = codec.decode(message, positions, 6, part)
        assert found.shape == matrix.shape and found.dtype == torch.float32
        assert ((found - matrix).abs() <= codec.bound(matrix, part)).all()
        assert codec.size_bytes(positions, 6, part) in (len(message), None)


@pytest.mark.parametrize("name", CODECS)
def test_bounds_are_not_above_what_the_widest_step_explains(name: str) -> None:
    matrix = _matrix(61, 6)
    span = (matrix.amax(dim=0) - matrix.amin(dim=0)).max()
    assert CODECS[name].bound(matrix, "keys").max() <= 0.52 * span / 3


@pytest.mark.parametrize("name", [name for name, codec in CODECS.items() if codec.by_position])
def test_a_position_decodes_alike_by_itself_and_among_others(name: str) -> None:
    codec, matrix = CODECS[name], _matrix(9, 6)
    among = codec.decode(codec.encode(matrix, "keys"), 9, 6, "keys")
    for row, expected in zip(matrix.split(1), among.split(1), strict=True):
        assert torch.equal(codec.decode(codec.encode(row, "keys"), 1, 6, "keys"), expected)


def test_which_codecs_carry_positions_by_themselves() -> None:
    assert [name for name, codec in CODECS.items() if codec.by_position] == ["fp32", "fp16", "int8_position", "int4"]


def test_two_bits_by_hand() -> None:
    codec = Uniform(bits=2)
    message = codec.encode(torch.tensor([[0.0, 1, 2, 3], [-1.0, 5, 5, 2]]), "values")
    # least 0 and -1, step 1 and 2 as float16; codes 0 1 2 3, 0 3 3 2 (1.5 steps go to the even), in planes of 2 bytes
    assert message == np.array([0, -1, 1, 2], np.float16).tobytes() + bytes([0b11_00_10_00, 0b10_11_11_01])
    assert codec.decode(message, 2, 4, "values").tolist() == [[0, 1, 2, 3], [-1, 5, 5, 3]]


def test_groups_by_hand() -> None:
    by_position, by_channel = Uniform(bits=8, group=4), Uniform(bits=8, along="channel", group=4)
    # 10 positions of 6 channels: groups of 4 and 2 of each row, or of 4, 4 and 2 of each column
    assert by_position.size_bytes(10, 6, "keys") == 10 * 2 * 4 + 60
    assert by_channel.size_bytes(10, 6, "keys") == 6 * 3 * 4 + 60
    matrix = torch.zeros(10, 6)
    matrix[9, 5] = 255.0
    # the scale of a group is its own
    assert (by_channel.bound(matrix, "keys") > 0).nonzero().tolist() == [[8, 5], [9, 5]]
    assert (by_position.bound(matrix, "keys") > 0).nonzero().tolist() == [[9, 4], [9, 5]]


def test_kivi_shares_scales_by_channel_for_keys_and_by_position_for_values_and_leaves_the_last_whole() -> None:
    codec, matrix = Kivi(group=8, residual=5), _matrix(32, 16)
    assert [codec.coarse_positions(count) for count in (0, 5, 12, 13, 32)] == [0, 0, 0, 8, 24]
    assert codec.size_bytes(32, 16, "keys") == 16 * 3 * 4 + 24 * 16 // 4 + 2 * 8 * 16
    assert codec.size_bytes(32, 16, "values") == 24 * 2 * 4 + 24 * 16 // 4 + 2 * 8 * 16
    errors = {part: codec.decode(codec.encode(matrix, part), 32, 16, part) - matrix for part in ("keys", "values")}
    # channels of different sizes spoil one another where they share a scale
    assert errors["keys"][:24, 0].norm() < 0.1 * errors["values"][:24, 0].norm()
    for error in errors.values():
        assert (error[24:].abs() <= Floats().bound(matrix[24:], "keys")).all() and error[23].abs().max() > 0.1


def test_differences_of_like_neighbours_take_fewer_bytes_than_eight_bits_and_do_not_add_up() -> None:
    matrix = torch.cat([_matrix(200, 16), _matrix(200, 16, seed=1)])
    fine, coarse = CacheGen(step=0.25), CacheGen(step=1.0)
    sizes = [len(codec.encode(matrix, "keys")) for codec in (Uniform(bits=8), fine, coarse)]
    assert sizes == sorted(sizes, reverse=True)
    errors = (coarse.decode(coarse.encode(matrix, "keys"), 400, 16, "keys") - matrix).abs()
    assert errors[9::10].max(dim=0).values.div(errors[1::10].max(dim=0).values).max() < 1.5


@pytest.mark.parametrize("name", CODECS)
@pytest.mark.parametrize("wrong", [float("nan"), float("inf")])
def test_what_is_no_number_is_refused(name: str, wrong: float) -> None:
    matrix = _matrix(20, 6)
    matrix[3, 2] = wrong
    with pytest.raises(NonFiniteError, match="NaN or infinity"):
        CODECS[name].encode(matrix, "keys")


@pytest.mark.parametrize("name", [name for name in CODECS if name != "fp32"])
def test_what_lies_beyond_float16_is_refused(name: str) -> None:
    matrix = _matrix(20, 6)
    matrix[3, 2] = -1e9
    with pytest.raises(NonFiniteError, match="16 bits"):
        CODECS[name].encode(matrix, "keys")


@pytest.mark.parametrize("name", CODECS)
def test_messages_that_are_cut_or_too_long_are_refused(name: str) -> None:
    codec: KVCodec = CODECS[name]
    message = codec.encode(_matrix(20, 6), "keys")
    for damaged in (b"", message[:7], message[:-1], message[:-9] + bytes(8), message[:-1] + b"more"):
        with pytest.raises(PayloadError, match="KV message"):
            codec.decode(damaged, 20, 6, "keys")
    with pytest.raises(PayloadError):
        codec.decode(message, 22, 6, "keys")


def test_rounding_to_one_side_is_to_the_next_float() -> None:
    numbers = np.array([0.1, -0.1, 1.0, 1e-9, -1e-9, 0.0, 1e6])
    below, above = half_below(numbers), half_above(numbers)
    assert (below <= numbers).all() and (above >= numbers).all()
    assert (np.nextafter(below[:-1], np.float16(np.inf)) >= above[:-1]).all()
    assert below[2] == above[2] == 1.0 and below[6] == np.finfo(np.float16).max and above[6] == np.inf


def test_wrong_parameters_are_told_together() -> None:
    with pytest.raises(ValueError, match=r"bits=3.*\n.*along=row.*\n.*group=1"):
        Uniform(bits=3, along="row", group=1)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"bits=5.*\n.*group=1.*\n.*residual=-1"):
        Kivi(bits=5, group=1, residual=-1)
    with pytest.raises(ValueError, match=r"group=1.*\n.*step=0.*\n.*level=0"):
        CacheGen(group=1, step=0, level=0)
