"""What a near side asks of a far one and what that answers, as bytes.

A question is a header and, for each head, what is chosen of it; little-endian, no padding:

    kind 1 | layer 1 | parts 1 | heads 1 | length 4 | unit 2 | for each head: form 1 | count 4 | numbers

`length` is how many positions it is about, from the first; `unit` how many positions a number stands for, as those of
a page. Numbers go up and are written as the shorter of two forms: 0, as 16 bits each, or 32 where the highest takes
more (form 1); 2, as one bit for each number there could be. An answer is blobs, each as long as the 4 bytes before it
say: of each head what was asked for, keys before values.
"""

from __future__ import annotations

import enum
import math
import struct
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from compressors.base.payload import PayloadError
from testbed.worker.methods.kv_transfer.cache.kv_codecs import Floats

_HEADER = struct.Struct("<BBBBIH")
_LIST = struct.Struct("<BI")
_SIZE = struct.Struct("<I")
HEADER_BYTES = _HEADER.size
_LIST16, _LIST32, _BITMAP = 0, 1, 2


class Kind(enum.IntEnum):
    EVERYTHING = 0
    """All positions; no numbers follow."""
    POSITIONS = 1
    """Positions, or units of them."""
    COMPONENTS = 2
    """Channels of the keys of all positions."""
    APPEND = 3
    """No question: keys and values that leave the near side follow as blobs, `length` is the position of the first."""


class Parts(enum.IntEnum):
    KEYS = 1
    VALUES = 2
    BOTH = 3


class Question(NamedTuple):
    kind: Kind
    layer: int
    parts: Parts
    heads: int
    length: int
    unit: int = 1
    chosen: tuple[Tensor, ...] = ()
    """Of each head its numbers, ascending, int64."""

    def encode(self, channels: int = 0) -> bytes:
        """
        Args:
            channels: how many there are to choose from, for COMPONENTS.
        """
        header = _HEADER.pack(self.kind, self.layer, self.parts, self.heads, self.length, self.unit)
        among = channels if self.kind is Kind.COMPONENTS else math.ceil(self.length / self.unit)
        return header + b"".join(_encode_numbers(numbers, among) for numbers in self.chosen)

    def positions(self, head: int) -> Tensor:
        """Those that it is about, of one head."""
        if self.kind is Kind.EVERYTHING:
            return torch.arange(self.length)
        units = self.chosen[head][:, None] * self.unit + torch.arange(self.unit)
        return units.flatten()[units.flatten() < self.length]


def decode_question(message: bytes, channels: int) -> Question:
    """
    Args:
        channels: of a head.

    Raises:
        PayloadError: the message is none of the above, or is cut.
    """
    if len(message) < HEADER_BYTES:
        raise PayloadError(f"KV question: {len(message)} bytes are less than its header of {HEADER_BYTES}")
    kind, layer, parts, heads, length, unit = _HEADER.unpack_from(message)
    if kind not in list(Kind) or parts not in list(Parts) or not unit:
        raise PayloadError(f"KV question: kind {kind}, parts {parts} and unit {unit} are none that there is")
    question = Question(Kind(kind), layer, Parts(parts), heads, length, unit)
    if kind in (Kind.EVERYTHING, Kind.APPEND):
        return question
    among = channels if kind == Kind.COMPONENTS else math.ceil(length / unit)
    chosen, start = [], HEADER_BYTES
    for _ in range(heads):
        numbers, start = _decode_numbers(message, start, among)
        chosen.append(numbers)
    if start != len(message):
        raise PayloadError(f"KV question: {len(message) - start} bytes are left over")
    return question._replace(chosen=tuple(chosen))


def encode_blobs(blobs: Sequence[bytes]) -> bytes:
    return b"".join(_SIZE.pack(len(blob)) + blob for blob in blobs)


def decode_blobs(message: bytes, count: int, start: int = 0) -> list[bytes]:
    """
    Raises:
        PayloadError: there are not so many, or others.
    """
    blobs: list[bytes] = []
    for _ in range(count):
        begin = start + _SIZE.size
        size = _SIZE.unpack_from(message, start)[0] if begin <= len(message) else 0
        start = begin + size
        if start > len(message):
            raise PayloadError(f"KV message: {len(message)} bytes hold {len(blobs)} whole blobs of {count}")
        blobs.append(message[begin:start])
    if start != len(message):
        raise PayloadError(f"KV message: {len(message) - start} bytes are left over after {count} blobs")
    return blobs


def encode_tensors(tensors: Sequence[Tensor], floats: Floats) -> bytes:
    """Of any shapes: for each its dimensions, 1 byte, and their sizes, 4 bytes each; then its numbers, as a blob."""
    pieces = []
    for tensor in tensors:
        sizes = struct.pack(f"<B{tensor.ndim}I", tensor.ndim, *tensor.shape)
        pieces += [sizes, floats.encode(tensor.reshape(1, -1), "keys")]
    return struct.pack("<I", len(tensors)) + encode_blobs(pieces)


def decode_tensors(message: bytes, floats: Floats) -> list[Tensor]:
    """
    Raises:
        PayloadError: the message is cut or damaged.
    """
    if len(message) < _SIZE.size:
        raise PayloadError(f"KV tensors: {len(message)} bytes")
    blobs = decode_blobs(message, 2 * _SIZE.unpack_from(message)[0], _SIZE.size)
    tensors = []
    for sizes, numbers in zip(blobs[::2], blobs[1::2], strict=True):
        if not sizes or len(sizes) != 1 + 4 * sizes[0]:
            raise PayloadError(f"KV tensors: a shape of {len(sizes)} bytes")
        shape = struct.unpack_from(f"<{sizes[0]}I", sizes, 1)
        tensors.append(floats.decode(numbers, 1, math.prod(shape), "keys").view(shape))
    return tensors


def _encode_numbers(numbers: Tensor, among: int) -> bytes:
    found = numbers.numpy()
    assert not len(found) or (bool((np.diff(found) > 0).all()) and found[0] >= 0 and found[-1] < among)
    form = _LIST16 if among <= 2**16 else _LIST32
    listed = found.astype("<u2" if form == _LIST16 else "<u4").tobytes()
    if math.ceil(among / 8) < len(listed):
        bits = np.zeros(among, dtype=np.uint8)
        bits[found] = 1
        form, listed = _BITMAP, np.packbits(bits, bitorder="little").tobytes()
    return _LIST.pack(form, len(found)) + listed


def _decode_numbers(message: bytes, start: int, among: int) -> tuple[Tensor, int]:
    body = start + _LIST.size
    form, count = _LIST.unpack_from(message, start) if body <= len(message) else (-1, 0)
    sizes = {_LIST16: 2 * count, _LIST32: 4 * count, _BITMAP: math.ceil(among / 8)}
    if form not in sizes or count > among or body + sizes[form] > len(message):
        raise PayloadError(f"KV question: {len(message)} bytes, cut or damaged at byte {start}")
    piece = message[body : body + sizes[form]]
    if form == _BITMAP:
        found = np.flatnonzero(np.unpackbits(np.frombuffer(piece, np.uint8), bitorder="little")).astype(np.int64)
    else:
        found = np.frombuffer(piece, "<u2" if form == _LIST16 else "<u4").astype(np.int64)
    if len(found) != count or (len(found) and (found[-1] >= among or (np.diff(found) <= 0).any())):
        raise PayloadError(f"KV question: its numbers at byte {start} do not go up, or are not {count} below {among}")
    return torch.from_numpy(found), body + len(piece)
