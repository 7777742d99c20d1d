"""Index codecs of DeepReduce: sets come back, in as many bits as theory says."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from compressors.base.streams import Stream
from compressors.parts.bits import Integers
from compressors.parts.deepreduce_bloom import Bloom, filter_bits, hash_count
from compressors.parts.deepreduce_index import (
    Bitmap,
    EliasFano,
    Huffman,
    IndexCodec,
    Raw,
    Rice,
    code_lengths,
    entropy_bits,
)

EXACT: list[IndexCodec] = [Raw(), Bitmap(), Rice(), EliasFano(), Huffman()]
STREAM = Stream(0x0123456789ABCDEF)


def _set(numel: int, count: int, seed: int = 0) -> Integers:
    return np.sort(np.random.default_rng(seed).choice(numel, count, replace=False))


@pytest.mark.parametrize("codec", EXACT, ids=lambda codec: type(codec).__name__)
@settings(max_examples=60)
@given(entries=st.sets(st.integers(0, 4999), min_size=1, max_size=300), extra=st.integers(0, 3))
def test_sets_come_back_as_they_were(codec: IndexCodec, entries: set[int], extra: int) -> None:
    indices, numel = np.array(sorted(entries)), max(entries) + 1 + extra
    data, carried = codec.encode(indices, numel, STREAM)
    assert np.array_equal(carried, indices)
    assert np.array_equal(codec.decode(data, len(indices), numel, STREAM), indices)


@pytest.mark.parametrize("codec", EXACT, ids=lambda codec: type(codec).__name__)
@pytest.mark.parametrize("numel", [1, 2, 9, 4096, 2**31 - 1])
def test_first_and_last_entries_have_codes(codec: IndexCodec, numel: int) -> None:
    if isinstance(codec, Bitmap) and numel > 2**20:
        pytest.skip("a bit for each")
    for indices in (np.array([0]), np.array([numel - 1]), np.unique([0, numel - 1])):
        data, _ = codec.encode(indices, numel, STREAM)
        assert np.array_equal(codec.decode(data, len(indices), numel, STREAM), indices)


def test_a_set_of_everything_has_a_code() -> None:
    for codec in EXACT:
        data, _ = codec.encode(np.arange(1000), 1000, STREAM)
        assert np.array_equal(codec.decode(data, 1000, 1000, STREAM), np.arange(1000))


@pytest.mark.parametrize(
    ("density", "entropy", "rice", "elias_fano"),
    [(0.001, 11.41, 11.49, 11.97), (0.01, 8.08, 8.11, 8.64), (0.1, 4.69, 4.76, 5.32), (0.2, 3.61, 3.69, 4.32)],
)
def test_an_index_takes_the_bits_it_should(density: float, entropy: float, rice: float, elias_fano: float) -> None:
    numel = 2_000_000
    count = int(density * numel)
    indices = _set(numel, count)

    def bits(codec: IndexCodec) -> float:
        return 8 * len(codec.encode(indices, numel, STREAM)[0]) / count

    assert entropy_bits(count, numel) / count == pytest.approx(entropy, abs=0.01)
    assert bits(Rice()) == pytest.approx(rice, rel=0.02)
    assert bits(EliasFano()) == pytest.approx(elias_fano, rel=0.04)
    assert bits(Bitmap()) == pytest.approx(1 / density, rel=0.001)
    assert entropy < bits(Huffman()) < 1.06 * entropy
    for codec in EXACT:
        assert codec.bits(count, numel) / count == pytest.approx(bits(codec), rel=0.05)


def test_code_lengths_are_those_of_huffman() -> None:
    assert code_lengths([45, 13, 12, 16, 9, 5]) == [1, 3, 3, 3, 4, 4]
    assert code_lengths([0, 7, 0]) == [0, 1, 0]


@pytest.mark.parametrize(("count", "rate"), [(1000, 1e-3), (2000, 0.02), (5000, 0.3)])
def test_a_bloom_filter_passes_what_its_formula_says(count: int, rate: float) -> None:
    numel, size, hashes = 300_000, filter_bits(count, rate), hash_count(rate)
    assert size == math.ceil(-count * math.log(rate) / math.log(2) ** 2)
    assert hashes == math.ceil(math.log2(1 / rate))
    passed = 0
    for seed in range(8):
        indices = _set(numel, count, seed)
        data, carried = Bloom("p0", rate).encode(indices, numel, Stream(seed * 0x9E3779B97F4A7C15 & 2**64 - 1))
        assert len(data) == -(-size // 8)
        assert np.isin(indices, carried).all()
        passed += len(carried) - count
    expected = (1 - math.exp(-hashes * count / size)) ** hashes * (numel - count) * 8
    assert passed == pytest.approx(expected, abs=5 * expected**0.5 + 0.1 * expected)


@pytest.mark.parametrize("policy", ["p0", "p1", "p2"])
def test_sender_and_receiver_of_a_bloom_filter_carry_the_same(policy: str) -> None:
    indices, numel, codec = _set(40_000, 400), 40_000, Bloom(policy, 0.05)
    data, carried = codec.encode(indices, numel, STREAM)
    assert np.array_equal(codec.decode(data, len(indices), numel, STREAM), carried)
    assert (np.diff(carried) > 0).all()
    assert policy == "p0" or len(carried) == len(indices)
    assert not np.array_equal(codec.encode(indices, numel, Stream(7))[1], carried)
