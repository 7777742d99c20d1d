"""Ways of fetching keys and values, by the names and parameters that a user gives."""

from __future__ import annotations

import inspect
import struct
from collections.abc import Callable, Mapping
from typing import Any

import torch

from compressors.base.payload import PayloadError
from testbed.core.kinds import shown
from testbed.core.parameters import choice, raise_all
from testbed.worker.methods.kv_transfer.cache.kv_codecs import CacheGen, Floats, Kivi, KVCodec, Uniform
from testbed.worker.methods.kv_transfer.cache.messages import Parts, decode_blobs, encode_blobs
from testbed.worker.methods.kv_transfer.cache.store import PARTS, Coding, KVStore, Link
from testbed.worker.methods.kv_transfer.model.transformer import AttentionRequest, KVTransformer, Shape
from testbed.worker.methods.kv_transfer.selection.low_dimension import InfiniGen, Loki
from testbed.worker.methods.kv_transfer.selection.selector import Attended, Near, Selector, no_rows
from testbed.worker.methods.kv_transfer.selection.shadowkv import ShadowKV
from testbed.worker.methods.kv_transfer.selection.sparse_attention import Dense, Quest, RecentWindow, SparQ

# Moving everything once: the whole cache travels before the first step, and all of it is near from then on.

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

    def attended(self, asked: AttentionRequest, near: Near, link: Link) -> Attended:
        return self.joined(asked, near, no_rows(asked))

    def leave(self, layer: int, near: Near, link: Link) -> None:
        """Nothing leaves."""


SELECTORS: dict[str, type[Selector]] = {
    "dense": Dense,
    "once": Once,
    "recent": RecentWindow,
    "sparq": SparQ,
    "quest": Quest,
    "loki": Loki,
    "infinigen": InfiniGen,
    "shadowkv": ShadowKV,
}
WHOLE = ("dense", "once")
"""Those that fetch whole caches, for which any codec serves."""
CODECS: dict[str, Callable[[], KVCodec]] = {
    "fp16": Floats,
    "fp32": lambda: Floats(bits=32),
    "int8": Uniform,
    "int4": lambda: Uniform(bits=4),
    "kivi4": lambda: Kivi(bits=4),
    "kivi2": Kivi,
    "cachegen": CacheGen,
}
_OF_THE_MODEL = ("self", "coding", "speculate", "rotary_base")
"""What a user does not give."""


def parameters(selector: str) -> list[str]:
    """By which a selector can be asked for."""
    names = inspect.signature(SELECTORS[selector].__init__).parameters
    return [name for name in names if name not in _OF_THE_MODEL]


class Method:
    """A selector and a codec.

    Args:
        selector: one of `SELECTORS`.
        codec: of keys and values that are fetched, one of `CODECS`. Components, sinks, windows, what is appended and
            what the near side keeps are float16, and float32 with fp32.
        given: parameters of selectors by their names; one that is None is the selector's default.

    Raises:
        ValueError: a name or a parameter is none of the selector's, or out of its range; all of them.
    """

    def __init__(self, selector: str, codec: str, given: Mapping[str, Any]) -> None:
        faults = [choice("selector", selector, SELECTORS), choice("codec", codec, CODECS)]
        self.selector, self.codec = selector, codec
        self._given = {name: value for name, value in given.items() if value is not None}
        if faults[0] is None:
            known = parameters(selector)
            faults += [
                f"{name}={shown(value)}: not known to selector={selector}, which has: {', '.join(known) or 'none'}"
                for name, value in self._given.items()
                if name not in known
            ]
            faults += _range_faults(selector, {name: self._given[name] for name in known if name in self._given})
        if not any(faults[:2]) and selector not in WHOLE and not CODECS[codec]().by_position:
            able = ", ".join(name for name, new in CODECS.items() if new().by_position)
            faults.append(
                f"codec={codec}: carries whole caches, with selector={' or '.join(WHOLE)}; selector={selector} fetches"
                f" some positions: use {able}"
            )
        raise_all(*faults)

    def new(self, model: KVTransformer) -> Selector:
        """For one text; near and far side have one each."""
        coding = Coding(CODECS[self.codec](), Floats(bits=32 if self.codec == "fp32" else 16))
        return _made(self.selector, self._given, model, coding)


def _made(selector: str, given: Mapping[str, Any], model: KVTransformer, coding: Coding) -> Selector:
    kind = SELECTORS[selector]
    of_the_model: dict[str, Any] = {"speculate": model.speculated_query, "rotary_base": model.shape.rotary_base}
    wanted = inspect.signature(kind.__init__).parameters
    return kind(coding=coding, **{name: of_the_model[name] for name in of_the_model if name in wanted}, **given)


def _range_faults(selector: str, given: Mapping[str, Any]) -> list[str | None]:
    try:
        _made(selector, given, KVTransformer(Shape(layers=1, heads=1, head_width=2)), Coding())
    except ValueError as error:
        return [*str(error).splitlines()]
    return []
