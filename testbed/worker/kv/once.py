"""Moving everything once: the whole cache travels before the first step, and all of it is near from then on."""

from __future__ import annotations

import struct

import torch

from compressors.payload import PayloadError
from testbed.worker.kv.messages import Parts, decode_blobs, encode_blobs
from testbed.worker.kv.model import Asked
from testbed.worker.kv.selector import Attended, Near, Selector, no_rows
from testbed.worker.kv.store import PARTS, Coding, KVStore, Link

_HEADER = struct.Struct("<BBIH")
"""Layers, heads, positions, channels."""


class Once(Selector):
    """Everything, before the first step; then nothing. What a cluster does whose decoder has room for all of it.

    The cache travels in the codec of rows, which may need all of it at once: CacheGen's and KIVI's way. Wire: layers 1,
    heads 1, positions 4, channels 2 bytes, and of each layer a blob of each head's keys, then of each one's values.
    """

    def __init__(self, *, coding: Coding | None = None) -> None:
        super().__init__(recent=1, sinks=0, block=1, coding=coding)

    def set_up(self, store: KVStore) -> bytes:
        positions = store.held(0, "keys").shape[1]
        blobs = [
            self.coding.rows.encode(rows, part)
            for layer in range(store.layers)
            for part in PARTS[Parts.BOTH]
            for rows in store.held(layer, part)
        ]
        return _HEADER.pack(store.layers, store.heads, positions, store.channels) + encode_blobs(blobs)

    def start(self, message: bytes) -> None:
        layers, heads, positions, channels = _HEADER.unpack_from(message) if len(message) >= _HEADER.size else (0,) * 4
        if not layers * heads * channels:
            raise PayloadError(f"KV set-up: {layers} layers of {heads} heads in {len(message)} bytes")
        blobs = iter(decode_blobs(message, 2 * layers * heads, _HEADER.size))
        self.near = []
        for _ in range(layers):
            keys, values = (
                torch.stack([self.coding.rows.decode(next(blobs), positions, channels, part) for _ in range(heads)])
                for part in PARTS[Parts.BOTH]
            )
            none = keys[:, :0]
            self.near.append(Near(0, positions, keys, values, none, none))

    def attended(self, asked: Asked, near: Near, link: Link) -> Attended:
        return self.joined(asked, near, no_rows(asked))

    def leave(self, layer: int, near: Near, link: Link) -> None:
        """Nothing leaves."""
