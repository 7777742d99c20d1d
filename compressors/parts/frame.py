"""One frame around payloads whose size depends on the values, so that nothing damaged reaches a decoder.

    "LHF" | version 1 | codec 8 ASCII | kind 4 | elements 4 | body bytes 4 | CRC-32 of all else 4 | body

28 bytes, little-endian, then the body. A receiver knows how many elements it asked for and how long a body for these
can be at most; the checksum is against accidents, and no proof of who sent it.
"""

from __future__ import annotations

import math
import struct
import zlib
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from compressors.base.chunks import root_mean_square
from compressors.base.payload import (
    NonFiniteError,
    PayloadError,
    from_bytes,
    require_bytes,
    require_finite_payload,
    to_bytes,
)
from compressors.parts.codec_process import decode

ZERO, RAW, CODED = 0, 1, 2
"""Kinds of bodies: nothing, for a tensor of zeros; the bytes as they would be uncoded; a stream of the codec."""
_HEADER = struct.Struct("<3sB8sIIII")
HEADER_BYTES = _HEADER.size
_MAGIC, _VERSION = b"LHF", 1
_MAX_COUNT = 2**32 - 1


def pack(codec: str, kind: int, numel: int, body: Tensor | None = None) -> Tensor:
    """The payload, on the CPU, that carries the bytes of `body`, contiguous.

    Args:
        codec: its name, at most 8 ASCII characters.
        kind: ZERO, which has no body, RAW, CODED, or a codec's own number above these.

    Raises:
        ValueError: there are more elements or bytes than a frame can count.
    """
    body = torch.empty(0, dtype=torch.uint8) if body is None else to_bytes(body).cpu()
    if max(numel, len(body)) > _MAX_COUNT:
        raise ValueError(f"{codec}: {numel} elements in {len(body)} bytes; a frame counts to {_MAX_COUNT}")
    payload = torch.empty(HEADER_BYTES + len(body), dtype=torch.uint8)
    payload[HEADER_BYTES:] = body
    fields = (_MAGIC, _VERSION, _tag(codec), kind, numel, len(body))
    header = _HEADER.pack(*fields, _checksum(fields, payload))
    payload[:HEADER_BYTES] = torch.frombuffer(bytearray(header), dtype=torch.uint8)
    return payload


def pack_smaller(codec: str, numel: int, coded: Tensor, raw: Tensor) -> Tensor:
    """Return the payload of a stream or of the bytes that it encodes, whichever has fewer bytes."""
    return pack(codec, CODED, numel, coded) if coded.nbytes < raw.nbytes else pack(codec, RAW, numel, raw)


def unpack(
    payload: Tensor, codec: str, numel: int, limit: int, kinds: Sequence[int] = (ZERO, RAW, CODED)
) -> tuple[int, Tensor]:
    """The kind and the body, on the CPU, a view: checked in all that can be checked before a decoder sees a byte.

    Args:
        limit: the most bytes that a body for `numel` elements has.
        kinds: what the codec packs.

    Raises:
        PayloadError: with what was expected and what was found.
    """
    require_bytes(payload)
    named = f"{codec} payload for {numel} elements"
    if len(payload) < HEADER_BYTES:
        raise PayloadError(f"{named}: {len(payload)} bytes are less than its header of {HEADER_BYTES}")
    payload = payload.cpu().contiguous()
    *fields, checksum = _HEADER.unpack(payload[:HEADER_BYTES].numpy().tobytes())
    magic, version, tag, kind, elements, size = fields
    if (magic, version) != (_MAGIC, _VERSION):
        raise PayloadError(f"{named}: begins with {magic!r}, version {version}; expected {_MAGIC!r}, {_VERSION}")
    if tag != _tag(codec):
        raise PayloadError(f"{named}: was made by {tag.rstrip(bytes(1))!r}")
    if elements != numel:
        raise PayloadError(f"{named}: carries {elements}")
    found = len(payload) - HEADER_BYTES
    if size != found:
        raise PayloadError(f"{named}: its header says {size} bytes follow, found {found}")
    if size > limit:
        raise PayloadError(f"{named}: {size} bytes are more than the {limit} it can need")
    if kind not in kinds:
        raise PayloadError(f"{named}: is of kind {kind}, which is none of {codec}'s")
    if kind == ZERO and size:
        raise PayloadError(f"{named}: is said to be zeros, found {size} bytes")
    if checksum != (computed := _checksum(tuple(fields), payload)):
        raise PayloadError(f"{named}: its checksum is {checksum:#010x}, computed {computed:#010x}")
    return kind, payload[HEADER_BYTES:]


def finite_root_mean_square(values: Tensor, codec: str) -> float:
    """Return the root mean square, to which the bounds of lossy codecs are relative.

    Raises:
        NonFiniteError: It is not finite.
    """
    found = root_mean_square(values)
    if not math.isfinite(found):
        raise NonFiniteError(f"{codec}: the bucket holds NaN or infinity; the training has diverged")
    return found


def _tag(codec: str) -> bytes:
    tag = codec.encode("ascii")
    assert 0 < len(tag) <= 8, f"{codec!r} must have 1 to 8 characters"
    return tag.ljust(8, b"\0")


def _checksum(fields: tuple[object, ...], payload: Tensor) -> int:
    body: Any = payload[HEADER_BYTES:].numpy()
    return zlib.crc32(body, zlib.crc32(_HEADER.pack(*fields, 0)))


def resealed(data: bytes) -> bytes:
    """Return bytes with a frame in them that has the length and the checksum of what it holds; others as they are.

    Whoever damages a frame on purpose does the same.
    """
    at = data.find(_MAGIC)
    if at < 0 or len(data) - at < HEADER_BYTES:
        return data
    *fields, _, _ = _HEADER.unpack_from(data, at)
    body = data[at + HEADER_BYTES :]
    head = (*fields, len(body))
    return data[:at] + _HEADER.pack(*head, zlib.crc32(body, zlib.crc32(_HEADER.pack(*head, 0)))) + body


def floats(payload: Tensor, codec: str, numel: int, *, finite: bool = False) -> Tensor:
    """Return the values of a framed payload, float32 on the CPU: zeros, raw values, or a stream of `codec`.

    Args:
        finite: Refuse NaN and infinity, which the codec never packs.

    Raises:
        PayloadError: as `unpack` and `decode`.
    """
    values = _floats(payload, codec, numel)
    if finite:
        require_finite_payload(values, codec, numel)
    return values


def _floats(payload: Tensor, codec: str, numel: int) -> Tensor:
    kind, body = unpack(payload, codec, numel, 4 * numel)
    if kind == ZERO:
        return torch.zeros(numel)
    if kind == RAW and len(body) != 4 * numel:
        raise PayloadError(f"{codec} payload for {numel} elements: {len(body)} raw bytes, expected {4 * numel}")
    return from_bytes(body if kind == RAW else decode(codec, body, 4 * numel), torch.float32)
