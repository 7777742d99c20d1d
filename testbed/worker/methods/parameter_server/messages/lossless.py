"""Tensors bit for bit: as they are, shortened by zstd, as one value, or not at all.

raw        the bytes of the tensor in the order of its elements, little-endian; n * itemsize
zstd       a zstd frame of these with the first bytes of all values first, then the second ones, and so on
constant   the one value that all elements have, to the bit; itemsize bytes
unchanged  nothing: what the receiver has already, or zeros where differences travel
"""

from __future__ import annotations

import torch
from torch import Tensor

from compressors.base.payload import PayloadError, from_bytes, to_bytes
from compressors.parts import codec_process
from testbed.worker.methods.parameter_server.messages.schema import Item

RAW, ZSTD, CONSTANT, UNCHANGED = "raw", "zstd", "constant", "unchanged"
NAMES = (RAW, ZSTD, CONSTANT, UNCHANGED)
"""Of codecs, as messages have them."""
_LEVEL = 1
_ROOM = 1 << 17
"""Bytes a zstd stream may have beyond its values before it is given up."""
_SHORTEST = 128
"""Bytes below which zstd has nothing to find."""
_GLANCE = 16


def pack(tensor: Tensor, *, constants: bool, zstd: bool) -> tuple[str, Tensor]:
    """(the codec's name, the payload), of a contiguous tensor on the processor, which it may share memory with.

    Args:
        constants: whether to look for them.
        zstd: whether to try it.
    """
    raw = to_bytes(tensor)
    if constants and is_constant(tensor):
        return CONSTANT, raw[: tensor.dtype.itemsize]
    if zstd and len(raw) >= _SHORTEST:
        coded = codec_process.encode("zstd", raw, len(raw) + _ROOM, level=_LEVEL, planes=tensor.dtype.itemsize)
        if len(coded) < len(raw):
            return ZSTD, coded
    return RAW, raw


def unpack(codec: str, payload: Tensor, item: Item, dtype: torch.dtype) -> Tensor:
    """A new tensor of the item's shape.

    Args:
        codec: RAW, ZSTD or CONSTANT.

    Raises:
        PayloadError: the payload cannot be this tensor's.
    """
    size = dtype.itemsize if codec == CONSTANT else item.numel * dtype.itemsize
    if codec == ZSTD:
        payload = codec_process.decode("zstd", payload, size, planes=dtype.itemsize)
    elif len(payload) != size:
        raise PayloadError(f"{len(payload)} bytes, expected {size}")
    if dtype == torch.bool and len(payload) and int(payload.max()) > 1:
        raise PayloadError(f"a byte of {int(payload.max())} is neither true nor false")
    values = from_bytes(payload, dtype)
    return values.expand(item.shape).clone() if codec == CONSTANT else values.clone().view(item.shape)


def same_bits(ours: Tensor, theirs: Tensor) -> bool:
    """Of two contiguous tensors of one shape and type: also of NaN, and of zeros with their signs."""
    return torch.equal(to_bytes(ours), to_bytes(theirs))


def is_constant(tensor: Tensor) -> bool:
    """Whether a contiguous tensor has several elements, all of the same bits."""
    if tensor.numel() < 2:
        return False
    rows = to_bytes(tensor).view(-1, tensor.dtype.itemsize)
    return bool((rows[:_GLANCE] == rows[0]).all()) and bool((rows == rows[0]).all())
