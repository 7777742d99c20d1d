"""Several reductions side by side, as few collectives as they can do with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from compressors.base.compressor import Exchange, Rounds
from compressors.base.payload import PayloadError


@dataclass
class _Asked:
    rounds: Rounds
    exchange: Exchange


def in_lockstep(started: Sequence[Rounds]) -> Rounds:
    """All of them to their ends, one exchange of each at a time; what each sends, and all ranks send, stays the same.

    Sums of one dtype and operation, and payloads of known sizes, gathered ones equal on all ranks, share a collective.
    """
    asked = [_Asked(rounds, first) for rounds in started if (first := next(rounds, None)) is not None]
    while asked:
        following = []
        for together in _alike(asked):
            results = yield _merged([one.exchange for one in together])
            for one, result in zip(together, _apart([one.exchange for one in together], results), strict=True):
                try:
                    following.append(_Asked(one.rounds, one.rounds.send(result)))
                except StopIteration:
                    continue
        asked = following


def _alike(asked: Sequence[_Asked]) -> list[list[_Asked]]:
    groups: dict[object, list[_Asked]] = {}
    for index, one in enumerate(asked):
        exchange = one.exchange
        if exchange.kind == "all_reduce":
            key: object = ("all_reduce", exchange.data[0].dtype, exchange.op)
        elif exchange.sizes is None or (exchange.kind == "all_gather" and len(set(exchange.sizes)) > 1):
            key = index  # sizes are asked for, or payloads are padded to the longest, each its own
        else:
            key = exchange.kind
        groups.setdefault(key, []).append(one)
    return list(groups.values())


def _merged(exchanges: Sequence[Exchange]) -> Exchange:
    first = exchanges[0]
    if len(exchanges) == 1:
        return first
    data = [torch.cat([e.data[to].reshape(-1) for e in exchanges]) for to in range(len(first.data))]
    known = [e.sizes for e in exchanges if e.sizes is not None]
    return Exchange(
        kind=first.kind,
        data=data,
        op=first.op,
        sizes=[sum(sizes) for sizes in zip(*known, strict=True)] if known else None,
        then="compress" if any(e.then == "compress" for e in exchanges) else "decompress",
    )


def _apart(exchanges: Sequence[Exchange], results: list[Tensor]) -> list[list[Tensor]]:
    """What each of the exchanges that were merged would have come back with.

    Raises:
        PayloadError: a peer sent another number of bytes.
    """
    if len(exchanges) == 1:
        return [results]
    if exchanges[0].kind == "all_reduce":
        pieces = results[0].split([e.data[0].numel() for e in exchanges])
        return [[piece.view(e.data[0].shape)] for e, piece in zip(exchanges, pieces, strict=True)]
    known = [e.sizes for e in exchanges if e.sizes is not None]
    parts = []
    for result, sizes in zip(results, zip(*known, strict=True), strict=True):
        if len(result) != sum(sizes):
            raise PayloadError(f"{len(sizes)} payloads that came as one: expected {sizes} bytes, found {len(result)}")
        parts.append(result.split(sizes))
    return [[part[index] for part in parts] for index in range(len(exchanges))]
