"""Index codecs of DeepReduce: which entries of a bucket are sent. A library: no compressor is defined here."""

from __future__ import annotations

import heapq
import math
from abc import ABC, abstractmethod
from typing import ClassVar

import numpy as np

from compressors.base.payload import PayloadError
from compressors.base.streams import Stream
from compressors.parts.bits import CPU, BitReader, BitWriter, Bytes, Device, Integers


class IndexCodec(ABC):
    """Codec of a set of entries. It also says for which entries values are then sent."""

    number: ClassVar[int]
    """Number of the codec on the wire."""
    keeps_all: bool = True
    """True if a value is sent for each entry of the set."""

    @abstractmethod
    def encode(self, indices: Integers, numel: int, stream: Stream, device: Device = CPU) -> tuple[Bytes, Integers]:
        """Return (bytes for the wire, ascending entries whose values are sent).

        Args:
            indices: Entries, ascending, below `numel`.
            stream: Random numbers, equal for sender and receiver.
            device: Where work that grows with `numel` is done.
        """

    @abstractmethod
    def decode(self, data: Bytes, count: int, numel: int, stream: Stream, device: Device = CPU) -> Integers:
        """Return the entries whose values were sent, ascending.

        Args:
            count: Entries of the set that was coded, at most `numel`.

        Raises:
            PayloadError: `data` codes no such set.
        """

    @abstractmethod
    def bits(self, count: int, numel: int) -> float:
        """Return about how many bits a set of `count` takes, if it is spread evenly."""

    def carried(self, count: int, numel: int) -> float:
        """Return for about how many entries values are sent."""
        return count


class _Exact(IndexCodec):
    """Carries the set as it is."""

    def encode(self, indices: Integers, numel: int, stream: Stream, device: Device = CPU) -> tuple[Bytes, Integers]:
        return self._coded(indices, numel), indices

    def decode(self, data: Bytes, count: int, numel: int, stream: Stream, device: Device = CPU) -> Integers:
        if len(data) > self._most_bytes(count, numel):
            raise PayloadError(f"{self._named(count, numel)}: {len(data)} bytes are more than it can need")
        indices = self._decoded(data, count, numel)
        if count and (int(indices[0]) < 0 or int(indices[-1]) >= numel or bool((np.diff(indices) <= 0).any())):
            raise PayloadError(f"{self._named(count, numel)}: they do not ascend from 0 to below {numel}")
        return indices

    def _most_bytes(self, count: int, numel: int) -> int:
        return 5 * count + 64

    def _named(self, count: int, numel: int) -> str:
        return f"{type(self).__name__.lower()} code of {count} indices below {numel}"

    @abstractmethod
    def _coded(self, indices: Integers, numel: int) -> Bytes: ...

    @abstractmethod
    def _decoded(self, data: Bytes, count: int, numel: int) -> Integers: ...


class Raw(_Exact):
    """An int32 each; 32 bits an index."""

    number = 0

    def _coded(self, indices: Integers, numel: int) -> Bytes:
        return indices.astype("<i4").view(np.uint8)

    def _decoded(self, data: Bytes, count: int, numel: int) -> Integers:
        if len(data) != 4 * count:
            raise PayloadError(f"{self._named(count, numel)}: expected {4 * count} bytes, found {len(data)}")
        return np.frombuffer(data.tobytes(), dtype="<i4").astype(np.int64)

    def bits(self, count: int, numel: int) -> float:
        return 32.0 * count


class Bitmap(_Exact):
    """A bit for each entry of the bucket, 1 for those of the set."""

    number = 1

    def _most_bytes(self, count: int, numel: int) -> int:
        return -(-numel // 8)

    def _coded(self, indices: Integers, numel: int) -> Bytes:
        bits = np.zeros(numel, dtype=np.uint8)
        bits[indices] = 1
        return np.packbits(bits, bitorder="little")

    def _decoded(self, data: Bytes, count: int, numel: int) -> Integers:
        reader = BitReader(data, self._named(count, numel))
        indices = np.flatnonzero(reader.take(numel))
        reader.end()
        if len(indices) != count:
            raise PayloadError(f"{self._named(count, numel)}: found {len(indices)}")
        return indices

    def bits(self, count: int, numel: int) -> float:
        return float(numel)


class Rice(_Exact):
    """Gaps between neighbours, g: a byte b; of each g its b lowest bits, by planes; of each g >> b zeros and a one.

    Rice, "Some Practical Universal Noiseless Coding Techniques", JPL 79-22, 1979. The b is found for each payload: the
    one with the fewest bits among the neighbours of log2(ln 2 * mean gap).
    """

    number = 2

    def _coded(self, indices: Integers, numel: int) -> Bytes:
        gaps = np.diff(indices, prepend=-1) - 1
        guess = round(math.log2(max(1.0, math.log(2) * float(gaps.mean())))) if len(gaps) else 0
        candidates = range(max(0, guess - 1), guess + 2)
        width = min(candidates, key=lambda b: b * len(gaps) + int((gaps >> b).sum()))
        writer = BitWriter()
        writer.planes(gaps, width)
        writer.unary(gaps >> width)
        return np.concatenate([np.array([width], dtype=np.uint8), writer.packed()])

    def _decoded(self, data: Bytes, count: int, numel: int) -> Integers:
        named = self._named(count, numel)
        if not len(data) or data[0] > numel.bit_length():
            raise PayloadError(f"{named}: has no parameter up to {numel.bit_length()}")
        width, reader = int(data[0]), BitReader(data[1:], named)
        low = reader.planes(count, width)
        high = reader.unary(count)
        reader.end()
        if count and int(high.max()) > numel >> width:
            raise PayloadError(f"{named}: a gap is wider than {numel}")
        return np.cumsum((high << width | low) + 1) - 1

    def bits(self, count: int, numel: int) -> float:
        return entropy_bits(count, numel) + 0.08 * count


class EliasFano(_Exact):
    """The b lowest bits of each index, by planes, b = floor(log2(n / k)), and the growth of index >> b in unary.

    Elias, "Efficient Storage and Retrieval by Content and Address of Static Files", Journal of the ACM 21(2), 1974;
    Fano, "On the Number of Bits Required to Implement an Associative Memory", 1971. Needs no parameter.
    """

    number = 3

    def _coded(self, indices: Integers, numel: int) -> Bytes:
        width = _low_bits(len(indices), numel)
        writer = BitWriter()
        writer.planes(indices, width)
        writer.unary(np.diff(indices >> width, prepend=0))
        return writer.packed()

    def _decoded(self, data: Bytes, count: int, numel: int) -> Integers:
        named, width = self._named(count, numel), _low_bits(count, numel)
        reader = BitReader(data, named)
        low = reader.planes(count, width)
        high = np.cumsum(reader.unary(count))
        reader.end()
        if count and int(high[-1]) > numel >> width:
            raise PayloadError(f"{named}: an index is above {numel}")
        return high << width | low

    def bits(self, count: int, numel: int) -> float:
        width = _low_bits(count, numel)
        return count * (width + 1) + (numel >> width)


_CLASSES = 32
"""Bit lengths of 1 + gap, from 1 on: a gap is below 2**31."""
_LENGTH_BITS = 6


class Huffman(_Exact):
    """Gaps between neighbours: the bit length of 1 + gap in a canonical Huffman code, the bits below the highest raw.

    Huffman, "A Method for the Construction of Minimum-Redundancy Codes", Proceedings of the IRE 40(9), 1952. On the
    wire: code lengths of the 32 classes, 6 bits each; the first bits of all codes, the second bits of all codes that
    have one, and so on; of all gaps that have one the lowest bit, then the second, and so on. So no code is looked for
    bit by bit.
    Differs from the DeepReduce paper, which codes the four bytes of each index by a code made for 0 to n - 1: these
    bytes are nearly uniform, and the code takes about log2(n) bits an index.
    """

    number = 4

    def _coded(self, indices: Integers, numel: int) -> Bytes:
        plus = np.diff(indices, prepend=-1)
        classes = _bit_lengths(plus) - 1
        lengths = code_lengths(np.bincount(classes, minlength=_CLASSES).tolist())
        codes = _canonical(lengths)
        writer = BitWriter()
        writer.planes(np.array(lengths, dtype=np.int64), _LENGTH_BITS)
        ours, length = np.array(codes, dtype=np.int64)[classes], np.array(lengths, dtype=np.int64)[classes]
        for place in range(max(lengths, default=0)):
            has = length > place
            writer.put(ours[has] >> (length[has] - 1 - place) & 1)
        for bit in range(_CLASSES):
            writer.put(plus[classes > bit] >> bit & 1)
        return writer.packed()

    def _decoded(self, data: Bytes, count: int, numel: int) -> Integers:
        named = self._named(count, numel)
        reader = BitReader(data, named)
        lengths = reader.planes(_CLASSES, _LENGTH_BITS).tolist()
        used = sum(length > 0 for length in lengths)
        filled = sum(2 ** (_CLASSES - length) for length in lengths if length) if max(lengths) <= _CLASSES else 0
        if filled != (2**_CLASSES if used > 1 else 2 ** (_CLASSES - 1) * (count > 0)):
            raise PayloadError(f"{named}: its code lengths make no code")
        classes = self._classes(reader, lengths, count, named)
        plus = np.int64(1) << classes
        for bit in range(_CLASSES):
            has = classes > bit
            plus[has] |= reader.take(int(has.sum())).astype(np.int64) << bit
        reader.end()
        return np.cumsum(plus) - 1

    def _classes(self, reader: BitReader, lengths: list[int], count: int, named: str) -> Integers:
        order = np.array(sorted(range(_CLASSES), key=lambda c: (lengths[c], c)), dtype=np.int64)
        classes = np.zeros(count, dtype=np.int64)
        alive, prefix = np.arange(count), np.zeros(count, dtype=np.int64)
        first, before = 0, sum(length == 0 for length in lengths)
        for length in range(1, max(lengths) + 1):
            prefix = prefix << 1 | reader.take(len(alive))
            here = lengths.count(length)
            place = prefix - first
            ends = (place >= 0) & (place < here)
            classes[alive[ends]] = order[before + place[ends]]
            alive, prefix = alive[~ends], prefix[~ends]
            first, before = (first + here) << 1, before + here
        if len(alive):
            raise PayloadError(f"{named}: {len(alive)} codes have no end")
        return classes

    def bits(self, count: int, numel: int) -> float:
        return entropy_bits(count, numel) + 0.15 * count + _CLASSES * _LENGTH_BITS


def entropy_bits(count: int, numel: int) -> float:
    """Return n H(k / n): bits that no code of equally likely sets of `count` of `numel` entries goes far below."""
    if not 0 < count < numel:
        return 0.0
    density = count / numel
    return -numel * (density * math.log2(density) + (1 - density) * math.log1p(-density) / math.log(2))


def code_lengths(counts: list[int]) -> list[int]:
    """Return the code lengths of a Huffman code; 0 for symbols that do not occur, 1 for one that alone does."""
    heap = [(count, symbol, [symbol]) for symbol, count in enumerate(counts) if count]
    lengths = [0] * len(counts)
    for _, symbol, _ in heap:
        lengths[symbol] = int(len(heap) == 1)
    heapq.heapify(heap)
    while len(heap) > 1:
        (few, first, left), (many, second, right) = heapq.heappop(heap), heapq.heappop(heap)
        for symbol in left + right:
            lengths[symbol] += 1
        heapq.heappush(heap, (few + many, min(first, second), left + right))
    return lengths


def _canonical(lengths: list[int]) -> list[int]:
    """Codes in the order of their lengths, then of symbols."""
    codes, code, length = [0] * len(lengths), 0, 0
    for symbol in sorted((s for s, has in enumerate(lengths) if has), key=lambda s: (lengths[s], s)):
        code <<= lengths[symbol] - length
        length = lengths[symbol]
        codes[symbol] = code
        code += 1
    return codes


def _bit_lengths(positive: Integers) -> Integers:
    return np.frexp(positive.astype(np.float64))[1].astype(np.int64)


def _low_bits(count: int, numel: int) -> int:
    return max(0, (numel // count).bit_length() - 1) if count else 0
