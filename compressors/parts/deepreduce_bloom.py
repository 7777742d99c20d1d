"""The Bloom filter of DeepReduce. A library: no compressor is defined here."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from compressors.base.payload import PayloadError
from compressors.base.streams import Stream, hashes
from compressors.parts.bits import CPU, Bytes, Device, Integers
from compressors.parts.deepreduce_index import IndexCodec

POLICIES = ("p0", "p1", "p2")
_CHUNK = 1 << 18


def filter_bits(count: int, rate: float) -> int:
    """m, bits of a filter for `count` entries of which others pass at `rate`; the least is 8."""
    return max(8, math.ceil(-count * math.log(rate) / math.log(2) ** 2))


def hash_count(rate: float) -> int:
    """k."""
    return max(1, math.ceil(math.log2(1 / rate)))


class Bloom(IndexCodec):
    """A filter of m = -k ln(rate) / (ln 2)^2 bits for k entries, each marked by ceil(log2(1 / rate)) hash functions.

    Bloom, "Space/Time Trade-offs in Hash Coding with Allowable Errors", Communications of the ACM 13(7), 1970. P is all
    that pass, the set and false positives. Policies of the DeepReduce paper:

    p0    values of all of P are sent, those of the tensor itself at false positives: nothing of the set is lost
    p1    values of as many entries as the set has, drawn from P
    p2    as many, those first that must be of the set: conflict sets, of all entries of P that share a bit, by size;
          the one entry of a set of one is taken; of a larger set that has none yet, one is drawn
    The draws are those of a stream sender and receiver share.

    Hashes: h1 + j h2 modulo 2**32, scaled to m, j = 0, 1, ...; h1 and h2 are found from the index by a mixing function
    keyed by the stream, so no table is kept.
    Differs from the paper: other hashes than MurmurHash3; in p2 all sets of one size draw at once, and what is missing
    then is drawn from the rest of P.
    """

    number = 5

    def __init__(self, policy: str, rate: float) -> None:
        self.policy, self.rate = policy, rate
        self.keeps_all = policy == "p0"

    def encode(self, indices: Integers, numel: int, stream: Stream, device: Device = CPU) -> tuple[Bytes, Integers]:
        size = filter_bits(len(indices), self.rate)
        marks = np.zeros(size, dtype=np.uint8)
        for j in range(hash_count(self.rate)):
            marks[_places(torch.from_numpy(indices), j, size, stream).numpy()] = 1
        return np.packbits(marks, bitorder="little"), self._carried(marks, len(indices), numel, stream, device)

    def decode(self, data: Bytes, count: int, numel: int, stream: Stream, device: Device = CPU) -> Integers:
        size = filter_bits(count, self.rate)
        if len(data) != -(-size // 8):
            expected = f"expected {-(-size // 8)} bytes, found {len(data)}"
            raise PayloadError(f"bloom filter of {count} indices below {numel}: {expected}")
        marks = np.unpackbits(data, count=size, bitorder="little")
        if (found := int(marks.sum())) > (most := hash_count(self.rate) * count):  # else nearly all might pass
            raise PayloadError(f"bloom filter of {count} indices below {numel}: {found} marks, at most {most}")
        carried = self._carried(marks, count, numel, stream, device)
        if len(carried) < count:
            raise PayloadError(f"bloom filter of {count} indices below {numel}: {len(carried)} pass")
        return carried

    def bits(self, count: int, numel: int) -> float:
        return filter_bits(count, self.rate)

    def carried(self, count: int, numel: int) -> float:
        return count + self.rate * (numel - count) if self.policy == "p0" else count

    def _carried(self, marks: Bytes, count: int, numel: int, stream: Stream, device: torch.device) -> Integers:
        passing = self._passing(torch.from_numpy(marks).to(device), numel, stream).cpu().numpy()
        if self.policy == "p0" or len(passing) <= count:
            return passing
        # each entry of P by itself has a number, which is its turn in every draw
        turns = np.argsort(np.argsort(stream.bits(0, len(passing)).numpy(), kind="stable"), kind="stable")
        if self.policy == "p1":
            return passing[turns < count]
        return passing[self._by_conflicts(passing, turns, len(marks), count, stream)]

    def _passing(self, marks: Tensor, numel: int, stream: Stream) -> Tensor:
        """P; after each hash function only those that still pass are hashed on.

        An accelerator takes all entries at once, as `chunks` does.
        """
        found = [torch.empty(0, dtype=torch.int32, device=marks.device)]
        step = _CHUNK if marks.device.type == "cpu" else max(numel, 1)
        for start in range(0, numel, step):
            entries = torch.arange(start, min(start + step, numel), dtype=torch.int32, device=marks.device)
            for j in range(hash_count(self.rate)):
                passes = marks.index_select(0, _places(entries, j, len(marks), stream))
                entries = entries.index_select(0, passes.nonzero().view(-1))
            found.append(entries)
        return torch.cat(found).long()

    def _by_conflicts(
        self, passing: Integers, turns: Integers, size: int, count: int, stream: Stream
    ) -> NDArray[np.bool_]:
        hashes = hash_count(self.rate)
        places = np.concatenate([_places(torch.from_numpy(passing), j, size, stream).numpy() for j in range(hashes)])
        items = np.tile(np.arange(len(passing)), hashes)
        # an entry is once in a set, whichever of its hashes put it there; in a set, entries are in their turns
        pairs = np.sort(places * len(passing) + turns[items])
        pairs = pairs[np.diff(pairs, prepend=-1) != 0]
        entry_of = np.argsort(turns)
        items, places = entry_of[pairs % len(passing)], pairs // len(passing)
        starts = np.flatnonzero(np.diff(places, prepend=-1))
        sizes = np.diff(starts, append=len(places))
        taken = np.zeros(len(passing), dtype=np.bool_)
        for width in np.flatnonzero(np.bincount(sizes)):
            of_width = starts[sizes == width]
            has = taken[items[of_width[:, None] + np.arange(width)]].any(axis=1)
            drawn = np.zeros(len(passing), dtype=np.bool_)
            drawn[items[of_width[~has]]] = True
            _take(taken, np.flatnonzero(drawn), turns, count)
        _take(taken, np.flatnonzero(~taken), turns, count)
        return taken


def _take(taken: NDArray[np.bool_], drawn: NDArray[Any], turns: Integers, count: int) -> None:
    """Take what was drawn, by turns where that is more than is still to be taken."""
    missing = count - int(taken.sum())
    taken[drawn[np.argsort(turns[drawn])][:missing]] = True


def _places(indices: Tensor, j: int, size: int, stream: Stream) -> Tensor:
    """Return the places that hash function j gives in a filter of `size` bits, at most 2**45; int64."""
    words = indices.to(torch.int32)
    first = hashes(words, stream.key)
    if j:
        first.add_(hashes(words, stream.key >> 32 ^ 0x5BF03635).bitwise_or_(1), alpha=j)
    # the product with `size`, of which the upper half counts, may leave 64 bits
    wide = first.long().bitwise_and_(0xFFFFFFFF)
    low = wide.bitwise_and(0xFFFF).mul_(size).bitwise_right_shift_(16)
    return wide.bitwise_right_shift_(16).mul_(size).add_(low).bitwise_right_shift_(16)
