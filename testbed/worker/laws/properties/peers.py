"""What peers send in rounds of a compressor's own, as nobody should send it."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from compressors.base.compressor import Rounds
from compressors.base.payload import NonFiniteError, PayloadError
from compressors.parts.frame import resealed
from testbed.worker.laws.cases.malformed import (
    MEMORY_BYTES,
    bytes_of,
    memory_limit,
    mutated,
    require_declared,
    tensor_of,
    withstood,
)
from testbed.worker.laws.cases.registry import LAYOUT, Case, gradients, law, require
from testbed.worker.laws.cases.steps import contexts_of, noted, ranks_of, resumed
from testbed.worker.laws.properties.state import saved

WORLD_SIZE = 3
"""So few have all there is: trees with a rank that both hears and passes on, parts that others average."""
STEPS = 3
DAMAGED = 150
"""Tries, spread over all that arrives."""
_HEAD_BYTES = 2
"""Of what an opponent is given: which of the things that arrive the rest is put in place of."""


@dataclass(frozen=True)
class _Place:
    """Something that one rank gets of another: a payload, or the sum of all."""

    step: int
    rank: int
    exchange: int
    source: int


class Peers:
    """One rank among peers who keep to the rules but once.

    What all ranks got is noted once among honest ones; each try then takes one rank alone, from the state it had, which
    is given what was noted but for one thing. Peers that would have asked for something else by then are not played.
    """

    def __init__(self, case: Case) -> None:
        self._case = case
        self._states: list[list[dict[str, Any]]] = []
        self._got: list[list[list[list[Tensor]]]] = []
        """By step, exchange, rank and source."""
        self._given = [gradients(LAYOUT, WORLD_SIZE, seed=step) for step in range(STEPS)]
        ranks = ranks_of(case, WORLD_SIZE)
        for step in range(STEPS):
            self._states.append([saved(rank.state_dict()) for rank in ranks])
            parts = zip(ranks, self._given[step], contexts_of(case, LAYOUT, WORLD_SIZE, step=step), strict=True)
            self._got.append(noted([rank.rounds(t.clone(), c, out=torch.empty(len(t))) for rank, t, c in parts]))
        self.places = [
            _Place(step, rank, number, source)
            for step, exchanges in enumerate(self._got)
            for number, by_rank in enumerate(exchanges)
            for rank, results in enumerate(by_rank)
            for source, result in enumerate(results)
            if (source != rank or len(results) == 1) and result.numel()
        ]

    def sound(self) -> list[bytes]:
        return [self._head(number) + bytes_of(_raw(self._at(place))) for number, place in enumerate(self.places)]

    def resealed(self, data: bytes) -> bytes:
        return data[:_HEAD_BYTES] + resealed(data[_HEAD_BYTES:])

    def meet(self, data: bytes, what: str) -> str | None:
        """Why it refused, None if it answered; `data` says in front in place of what it is to come.

        Raises:
            LawBroken: it raised something else, took too long, wanted too much memory, changed the output's size, or
            left NaN or infinity there, which it says it does not carry.
        """
        place = self.places[int.from_bytes(data[:_HEAD_BYTES], "little") % len(self.places)]
        codec = self._case.make()
        codec.load_state_dict(self._states[place.step][place.rank])
        context = contexts_of(self._case, LAYOUT, WORLD_SIZE, step=place.step)[place.rank]
        out, error = torch.full((LAYOUT.numel,), 7.0), torch.empty(LAYOUT.numel)
        rounds = codec.rounds(self._given[place.step][place.rank], context, out=out, error=error)
        results = [list(by_rank[place.rank]) for by_rank in self._got[place.step]]
        got = results[place.exchange]
        got[place.source] = _in_place_of(got[place.source], data[_HEAD_BYTES:], is_sum=len(got) == 1)
        said = f"{what}, rank {place.rank}, step {place.step}, exchange {place.exchange} from {place.source}"
        refusal = withstood(lambda: _play(rounds, results), data, said, PayloadError, NonFiniteError)
        require(out.shape == (LAYOUT.numel,), f"{said}: the output has shape {tuple(out.shape)}")
        require_declared(codec, out, said)
        return refusal

    def _at(self, place: _Place) -> Tensor:
        return self._got[place.step][place.exchange][place.rank][place.source]

    @staticmethod
    def _head(number: int) -> bytes:
        return number.to_bytes(_HEAD_BYTES, "little")


def _play(rounds: Rounds, results: Sequence[list[Tensor]]) -> None:
    """All rounds of one rank; ends where it asks for another sum than was noted, which no collective would carry."""
    asked = resumed(rounds, None)
    for got in results:
        if asked is None:
            return
        if asked.kind == "all_reduce" and asked.data[0].shape != got[0].shape:
            return
        asked = resumed(rounds, [tensor.clone() for tensor in got])


def _raw(tensor: Tensor) -> Tensor:
    return tensor.contiguous().view(-1).view(torch.uint8)


def _in_place_of(tensor: Tensor, data: bytes, *, is_sum: bool) -> Tensor:
    """A payload of any length; a sum has the size that all ranks asked for."""
    if not is_sum:
        return tensor_of(data)
    whole = data[: tensor.nbytes].ljust(tensor.nbytes, b"\0")
    return tensor_of(whole).view(tensor.dtype).view(tensor.shape)


@law(
    "peers",
    "What a peer sends damaged in rounds of its own is answered, or refused by name, in bounded time and memory.",
    "own_rounds",
)
def damaged_by_peers(case: Case) -> None:
    peers, draw = Peers(case), random.Random(9)
    sound = peers.sound()
    if not sound:
        return  # nothing is exchanged in so few steps
    for whole in sound:
        require(peers.meet(whole, "a sound payload") is None, "a sound payload is refused")
    with memory_limit(MEMORY_BYTES):
        for whole in sound:
            head, body = whole[:_HEAD_BYTES], whole[_HEAD_BYTES:]
            for data in (b"", body[:1], body[:-1], body[: len(body) // 2], body + b"\0", body * 2):
                peers.meet(head + data, f"{len(data)} bytes in place of {len(body)}")
            for byte in (0, 0x7F, 0x80, 0xFF):
                peers.meet(head + bytes([byte]) * len(body), f"nothing but bytes {byte:#x}")
            peers.meet(head + draw.randbytes(len(body)), "random bytes")
        for number in range(DAMAGED):
            whole = draw.choice(sound)
            others = [one[_HEAD_BYTES:] for one in sound]
            bad = mutated(whole[_HEAD_BYTES:], draw, others)
            peers.meet(whole[:_HEAD_BYTES] + bad, f"damaged payload {number}")
