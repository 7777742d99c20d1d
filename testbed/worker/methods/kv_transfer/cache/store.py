"""The far side: keys and values by layer and head, and a link to it that counts what crosses."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

import torch
from torch import Tensor

from compressors.base.payload import PayloadError
from testbed.worker.methods.kv_transfer.cache.kv_codecs import Floats, KVCodec, Part
from testbed.worker.methods.kv_transfer.cache.messages import (
    HEADER_BYTES,
    Kind,
    Parts,
    Question,
    decode_blobs,
    decode_question,
    encode_blobs,
)

PARTS: dict[Parts, tuple[Part, ...]] = {
    Parts.KEYS: ("keys",),
    Parts.VALUES: ("values",),
    Parts.BOTH: ("keys", "values"),
}


@dataclass(frozen=True)
class Coding:
    """How numbers travel, known to both sides."""

    rows: KVCodec = field(default_factory=Floats)
    """Of fetched keys and values, each head's by itself. One that is not `by_position` serves for EVERYTHING only."""
    others: Floats = field(default_factory=Floats)
    """Of components, of what is appended, and of what the near side keeps."""


class KVStore:
    """What is far: it answers questions and takes what is appended, knowing nothing of the method that asks.

    Args:
        keys, values: [layers, heads, positions, head_width] after the prefill.
        coding: as the near side has it.
    """

    def __init__(self, keys: Tensor, values: Tensor, coding: Coding) -> None:
        self.coding = coding
        self._held: dict[Part, list[Tensor]] = {"keys": list(keys), "values": list(values)}
        self.layers, self.heads, _, self.channels = keys.shape

    def held(self, layer: int, part: Part) -> Tensor:
        """[heads, positions, head_width]."""
        return self._held[part][layer]

    def answer(self, message: bytes) -> bytes:
        """
        Raises:
            PayloadError: the message is damaged, or about what is not here.
        """
        question = decode_question(message, self.channels)
        if question.layer >= self.layers or question.heads != self.heads:
            asked, known = (question.layer, question.heads), (self.layers, self.heads)
            raise PayloadError(f"KV question: of (layer, heads) {asked}; there are {known}")
        if question.kind is Kind.APPEND:
            self._append(question, message[HEADER_BYTES:])
            return b""
        if question.length > (positions := self.held(question.layer, "keys").shape[1]):
            raise PayloadError(f"KV question: of {question.length} positions; {positions} are here")
        return encode_blobs(
            [self._blob(question, head, part) for head in range(self.heads) for part in _asked(question)]
        )

    def _blob(self, question: Question, head: int, part: Part) -> bytes:
        rows = self.held(question.layer, part)[head, : question.length]
        if question.kind is Kind.COMPONENTS:
            return self.coding.others.encode(rows[:, question.chosen[head]], part)
        if question.kind is Kind.POSITIONS:
            if not self.coding.rows.by_position:
                raise PayloadError(f"KV question: {type(self.coding.rows).__name__} carries no positions by themselves")
            rows = rows[question.positions(head)]
        return self.coding.rows.encode(rows, part)

    def _append(self, question: Question, body: bytes) -> None:
        if question.length != (positions := self.held(question.layer, "keys").shape[1]):
            raise PayloadError(f"KV append: to {question.length} positions; {positions} are here")
        count, rows = question.unit, {}
        blobs = iter(decode_blobs(body, 2 * self.heads))
        for part in PARTS[Parts.BOTH]:
            heads = [self.coding.others.decode(next(blobs), count, self.channels, part) for _ in range(self.heads)]
            rows[part] = torch.stack(heads)
        for part, new in rows.items():
            self._held[part][question.layer] = torch.cat([self.held(question.layer, part), new], dim=1)


def append_message(layer: int, first: int, keys: Tensor, values: Tensor, coding: Coding) -> bytes:
    """
    Args:
        first: the position of the first.
        keys, values: [heads, positions, head_width].
    """
    heads, count, _ = keys.shape
    header = Question(Kind.APPEND, layer, Parts.BOTH, heads, first, count).encode()
    blobs = [coding.others.encode(head, "keys") for head in keys]
    blobs += [coding.others.encode(head, "values") for head in values]
    return header + encode_blobs(blobs)


def _asked(question: Question) -> tuple[Part, ...]:
    return ("keys",) if question.kind is Kind.COMPONENTS else PARTS[question.parts]


class Link(Protocol):
    """The way to the far side and back."""

    def send(self, messages: Sequence[bytes], *, ahead: bool = False) -> int:
        """Questions that travel together, as one round trip; a ticket for their answers.

        Args:
            ahead: other work lies between this and the wait for the answers.
        """
        ...

    def receive(self, ticket: int) -> list[bytes]:
        """An answer for each question, once."""
        ...

    def tell(self, message: bytes) -> None:
        """What has no answer: nobody waits for it."""
        ...


@dataclass
class Traffic:
    """Bytes of payload, without what a transport adds."""

    asked_bytes: int = 0
    answered_bytes: int = 0
    told_bytes: int = 0
    """One way, as of what is appended."""
    round_trips: int = 0
    """That were waited for at once."""
    round_trips_ahead: int = 0
    """That other work lay in between."""

    @property
    def total_bytes(self) -> int:
        return self.asked_bytes + self.answered_bytes + self.told_bytes


class LocalLink:
    """A link to a store in this process: every message crosses as bytes, and is counted."""

    def __init__(self, store: KVStore) -> None:
        self.store, self.traffic = store, Traffic()
        self._answers: dict[int, list[bytes]] = {}
        self._sent = 0

    def send(self, messages: Sequence[bytes], *, ahead: bool = False) -> int:
        self.traffic.asked_bytes += sum(map(len, messages))
        self.traffic.round_trips += not ahead
        self.traffic.round_trips_ahead += ahead
        self._sent += 1
        self._answers[self._sent] = [self.store.answer(message) for message in messages]
        return self._sent

    def receive(self, ticket: int) -> list[bytes]:
        answers = self._answers.pop(ticket)
        self.traffic.answered_bytes += sum(map(len, answers))
        return answers

    def tell(self, message: bytes) -> None:
        self.traffic.told_bytes += len(message)
        self.store.answer(message)
