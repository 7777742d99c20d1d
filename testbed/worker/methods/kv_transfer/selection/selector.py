"""What all ways of fetching keys and values share: what is near, what leaves it, and the attention over both."""

from __future__ import annotations

import struct
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, NamedTuple

import torch
from torch import Tensor

from compressors.base.payload import PayloadError
from testbed.core.declaration import Declared
from testbed.core.kinds import Whole
from testbed.core.parameters import Count, CountOrZero, raise_all, whole
from testbed.worker.methods.kv_transfer.cache.messages import (
    Kind,
    Parts,
    Question,
    decode_blobs,
    decode_tensors,
    encode_tensors,
)
from testbed.worker.methods.kv_transfer.cache.store import PARTS, Coding, KVStore, Link, append_message
from testbed.worker.methods.kv_transfer.model.transformer import AttentionRequest, attention

_SET_UP = struct.Struct("<BI")
"""Layers, and positions that are not in the window."""
_ENDS = 4
"""Tensors of a layer before those of its summary: keys and values of window and sinks."""


class Rows(NamedTuple):
    """Keys and values of some positions of one head."""

    positions: Tensor
    """Ascending."""
    keys: Tensor
    """[positions, head_width]."""
    values: Tensor
    """[positions, head_width]."""


class Attended(NamedTuple):
    output: Tensor
    """[heads, head_width]."""
    positions: list[Tensor]
    """Of each head those that were attended to with keys and values of their own, ascending."""


@dataclass
class Near:
    """What is near of one layer."""

    far_length: int
    """Positions below it have left the window."""
    stored: int
    """Positions below it are in the store, some of them in the window too: a prefill leaves all of its own there."""
    keys: Tensor
    """[heads, window, head_width]; the window's first position is `far_length`."""
    values: Tensor
    sink_keys: Tensor
    """[heads, sinks, head_width]."""
    sink_values: Tensor

    @property
    def length(self) -> int:
        return self.far_length + self.keys.shape[1]

    @property
    def candidates(self) -> slice:
        """Positions of which nothing is near."""
        return slice(min(self.sink_keys.shape[1], self.far_length), self.far_length)


Block = Annotated[int, Whole(1, 2**16 - 1, unit="positions")]


class Selector(Declared, ABC):
    """A way of fetching what attention needs; near half and far half in one class, which share parameters alone.

    The first `sinks` positions and the last `recent` ones, up to `recent + block - 1` of them, are near in full and
    always attended to; `block` at a time they leave for the far side. `summarise` works far, on what a prefill left
    there, and tells the near side what it is to keep; all else works near.

    Attention is over the sinks, the window and what was fetched, unless a method says otherwise.

    Args:
        recent: Last positions, which are near.
        sinks: First positions, which are near, at most `recent` (Xiao et al., "Efficient Streaming Language Models with
            Attention Sinks", ICLR 2024).
        block: Positions that leave the window together; methods that know pages have pages of as many.
        coding: as the store has it.

    Raises:
        ValueError: a parameter is out of its range; all of them.
    """

    def __init__(self, *, recent: Count, sinks: CountOrZero, block: Block, coding: Coding | None) -> None:
        raise_all(whole("sinks", sinks, 0, recent))
        self.recent, self.sinks, self.block = recent, sinks, block
        self.coding = coding or Coding()
        self.near: list[Near] = []
        self.last_position: int | None = None
        """Position of the last step; None: not known, and nothing is asked for beyond the step that is decoded."""

    def set_up(self, store: KVStore) -> bytes:
        """The far side's message before the first step: window, sinks and summary of every layer."""
        length = store.held(0, "keys").shape[1]
        cut = max(length - self.recent, 0) // self.block * self.block
        tensors = []
        for layer in range(store.layers):
            keys, values = store.held(layer, "keys"), store.held(layer, "values")
            ends = [rows[:, some] for some in (slice(cut, None), slice(0, self.sinks)) for rows in (keys, values)]
            tensors += [*ends, *self.summarise(layer, keys[:, :cut], values[:, :cut])]
        return _SET_UP.pack(store.layers, cut) + encode_tensors(tensors, self.coding.others)

    def start(self, message: bytes) -> None:
        """
        Raises:
            PayloadError: the message is damaged, or another method's.
        """
        layers, cut = _SET_UP.unpack_from(message) if len(message) >= _SET_UP.size else (0, 0)
        tensors = decode_tensors(message[_SET_UP.size :], self.coding.others)
        per_layer = len(tensors) // max(layers, 1)
        if per_layer < _ENDS or len(tensors) != per_layer * layers:
            raise PayloadError(f"KV set-up: {len(tensors)} tensors for {layers} layers")
        self.near = []
        for layer in range(layers):
            keys, values, sink_keys, sink_values, *summary = tensors[layer * per_layer : (layer + 1) * per_layer]
            self.near.append(Near(cut, cut + keys.shape[1], keys, values, sink_keys, sink_values))
            self.keep(layer, summary)

    def attend(self, asked: AttentionRequest, link: Link) -> Attended:
        """One layer's attention at one step; its new key and value become near."""
        near = self.near[asked.layer]
        near.keys = torch.cat([near.keys, asked.key[:, None]], dim=1)
        near.values = torch.cat([near.values, asked.value[:, None]], dim=1)
        if near.length <= self.sinks:
            near.sink_keys, near.sink_values = near.keys, near.values
        attended = self.attended(asked, near, link)
        if near.keys.shape[1] >= self.recent + self.block:
            self.leave(asked.layer, near, link)
        return attended

    def near_bytes(self) -> int:
        """What is near between two steps, numbers as wide as they travel."""
        tensors = [
            tensor
            for layer, near in enumerate(self.near)
            for tensor in (near.keys, near.values, near.sink_keys, near.sink_values, *self.kept(layer))
        ]
        return sum(self.coding.others.size_bytes(1, tensor.numel(), "keys") for tensor in tensors)

    @abstractmethod
    def attended(self, asked: AttentionRequest, near: Near, link: Link) -> Attended: ...

    def summarise(self, layer: int, keys: Tensor, values: Tensor) -> list[Tensor]:
        """Far: what `keep` is to be given, of [heads, positions, head_width], the positions whole blocks."""
        return []

    def keep(self, layer: int, summary: list[Tensor]) -> None:
        """Near: of layer after layer."""
        if summary:
            raise PayloadError(f"KV set-up: {type(self).__name__} keeps nothing, found {len(summary)} tensors a layer")

    def grow(self, layer: int, keys: Tensor, values: Tensor) -> None:
        """Near: a block, [heads, block, head_width], leaves the window for the position `far_length`."""

    def kept(self, layer: int) -> list[Tensor]:
        """Near: what is kept besides sinks and window."""
        return []

    def joined(self, asked: AttentionRequest, near: Near, fetched: Sequence[Rows]) -> Attended:
        """Exact attention over sinks, what was fetched, and window."""
        outputs, positions = [], []
        for head, rows in enumerate(fetched):
            joined = joined_rows(near, head, rows)
            outputs.append(attention(asked.query[head], joined.keys, joined.values)[0])
            positions.append(joined.positions)
        return Attended(torch.stack(outputs), positions)

    def question(self, layer: int, near: Near, chosen: Sequence[Tensor], parts: Parts, unit: int = 1) -> Question:
        return Question(Kind.POSITIONS, layer, parts, len(chosen), near.far_length, unit, tuple(chosen))

    def fetch(self, question: Question, link: Link, channels: int) -> list[list[Tensor]]:
        """In one round trip, or none if nothing is chosen: of each head the parts asked for."""
        if not any(len(numbers) for numbers in question.chosen):
            empty = torch.zeros(0, channels)
            return [[empty] * len(PARTS[question.parts]) for _ in question.chosen]
        (answer,) = link.receive(link.send([question.encode()]))
        return self.decoded(question, answer, channels)

    def decoded(self, question: Question, answer: bytes, channels: int) -> list[list[Tensor]]:
        parts = PARTS[question.parts]
        blobs = iter(decode_blobs(answer, len(parts) * question.heads))
        found = []
        for head in range(question.heads):
            count = len(question.positions(head))
            found.append([self.coding.rows.decode(next(blobs), count, channels, part) for part in parts])
        return found

    def leave(self, layer: int, near: Near, link: Link) -> None:
        """Send the first block of the window away, and know it as far."""
        keys, values = near.keys[:, : self.block], near.values[:, : self.block]
        self.grow(layer, keys, values)
        near.keys, near.values = near.keys[:, self.block :], near.values[:, self.block :]
        known = min(max(near.stored - near.far_length, 0), self.block)
        near.far_length += self.block
        if known < self.block:
            link.tell(append_message(layer, near.stored, keys[:, known:], values[:, known:], self.coding))
            near.stored = near.far_length


def rows_of(question: Question, parts: Sequence[Sequence[Tensor]]) -> list[Rows]:
    """Of each head what `Selector.fetch` got for a question about BOTH parts."""
    return [Rows(question.positions(head), keys, values) for head, (keys, values) in enumerate(parts)]


def no_rows(asked: AttentionRequest) -> list[Rows]:
    """Of each head none."""
    heads, channels = asked.query.shape
    empty = torch.zeros(0, channels)
    return [Rows(torch.zeros(0, dtype=torch.long), empty, empty)] * heads


def joined_rows(near: Near, head: int, rows: Rows) -> Rows:
    """Sinks, fetched rows that are none, and window, by position."""
    sinks = near.candidates.start
    new = rows.positions >= sinks
    places = [torch.arange(sinks), rows.positions[new], torch.arange(near.far_length, near.length)]
    keys = [near.sink_keys[head, :sinks], rows.keys[new], near.keys[head]]
    values = [near.sink_values[head, :sinks], rows.values[new], near.values[head]]
    return Rows(torch.cat(places), torch.cat(keys), torch.cat(values))


def highest(scores: Tensor, count: int, start: int = 0) -> Tensor:
    """Where the `count` highest of scores [n] are, from `start`, ascending; all where there are no more."""
    found = scores.topk(min(count, len(scores))).indices
    return found.sort().values + start
