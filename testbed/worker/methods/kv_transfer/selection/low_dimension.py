"""Which keys and values a decode step fetches, by keys of few dimensions that are near: Loki's and InfiniGen's ways.

| method | near, besides sinks and window | asked for | round trips of a layer and step |
|---|---|---|---|
| `Loki` | keys in their main directions | keys and values of the best | 1 |
| `InfiniGen` | keys in their main directions | the same, a layer early or for all layers | 1 ahead, or 1 a step |

ShadowKV, in `shadow`, keeps such keys too, and attends to them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Annotated

import torch
from torch import Tensor

from testbed.core.kinds import Choice, Number
from testbed.core.parameters import Count, CountOrZero
from testbed.worker.methods.kv_transfer.cache.messages import Parts, Question
from testbed.worker.methods.kv_transfer.cache.store import Coding, Link
from testbed.worker.methods.kv_transfer.model.transformer import AttentionRequest
from testbed.worker.methods.kv_transfer.selection.selector import (
    Attended,
    Block,
    Near,
    Selector,
    highest,
    no_rows,
    rows_of,
)

Speculate = Callable[[int, Tensor, int], Tensor]
"""Layer, the input of one before it, position -> that layer's query, [heads, head_width]."""


REACHES = ("next", "all")


class InDirections(Selector):
    """Keeps keys near in `rank` orthogonal directions, found from those of the prefill.

    Args:
        rank: directions; no more than keys have dimensions are kept.
        centred: they are those of the keys about their mean, else about zero.
    """

    def __init__(
        self,
        rank: Count,
        *,
        centred: bool,
        recent: Count,
        sinks: CountOrZero,
        block: Block,
        coding: Coding | None,
    ) -> None:
        super().__init__(recent=recent, sinks=sinks, block=block, coding=coding)
        self.rank, self.centred = rank, centred
        self._directions: list[Tensor] = []
        self._keys: list[Tensor] = []

    def summarise(self, layer: int, keys: Tensor, values: Tensor) -> list[Tensor]:
        directions = main_directions(keys, self.rank, centred=self.centred)
        return [directions, keys @ directions]

    def keep(self, layer: int, summary: list[Tensor]) -> None:
        self._directions[layer:], self._keys[layer:] = [summary[0]], [summary[1]]

    def grow(self, layer: int, keys: Tensor, values: Tensor) -> None:
        self._keys[layer] = torch.cat([self._keys[layer], keys @ self._directions[layer]], dim=1)

    def kept(self, layer: int) -> list[Tensor]:
        return [self._directions[layer], self._keys[layer]]

    def scores(self, layer: int, query: Tensor) -> Tensor:
        """Of each head and far position what q k / sqrt(d) is in these directions."""
        turned = query[:, None] @ self._directions[layer] @ self._keys[layer].transpose(1, 2)
        return turned[:, 0] / math.sqrt(query.shape[1])


class Loki(InDirections):
    """The best positions by the scores of keys in their principal components.

    Singhania et al., "Loki: Low-rank Keys for Efficient Sparse Attention", NeurIPS 2024, arXiv 2406.02542. Components
    are those of each head's rotated keys after the prefill, about their mean, which moves all scores alike; the paper
    finds them beforehand on a calibration set.

    Args:
        rank: components that are near.
        budget: positions that are fetched for each head, at most.
    """

    def __init__(
        self,
        *,
        rank: Count = 8,
        budget: Count = 64,
        recent: Count = 32,
        sinks: CountOrZero = 4,
        block: Block = 16,
        coding: Coding | None = None,
    ) -> None:
        super().__init__(rank, centred=True, recent=recent, sinks=sinks, block=block, coding=coding)
        self.budget = budget

    def attended(self, asked: AttentionRequest, near: Near, link: Link) -> Attended:
        some = near.candidates
        scores = self.scores(asked.layer, asked.query)[:, some]
        chosen = [highest(of_head, self.budget, some.start) for of_head in scores]
        question = self.question(asked.layer, near, chosen, Parts.BOTH)
        return self.joined(asked, near, rows_of(question, self.fetch(question, link, asked.query.shape[1])))


class InfiniGen(InDirections):
    """Fetches before the layer is reached, by the query it would have if its input were that of a layer before it.

    Lee et al., "InfiniGen: Efficient Generative Inference of Large Language Models with Dynamic KV Cache Management",
    OSDI 2024, arXiv 2406.19707. Keys and queries are turned so that few columns hold most of what scores are made of,
    here by each head's main directions of rotated keys. Wanted are positions whose speculated score, q k / sqrt(d), is
    at most `alpha` below the highest. Layer 0 has no layer before it and waits for its own query's answer.

    Args:
        speculate: `KVTransformer.speculated_query`.
        rank: columns that are near.
        alpha: nats.
        budget: positions that are fetched for each head, at most.
        reach: "next": each layer asks for the following one. "all": the first layer asks for all, in one round trip
            a step, which is not in the paper: over a wide area a step's time is the number of round trips.
    """

    def __init__(
        self,
        *,
        speculate: Speculate,
        rank: Count = 10,
        alpha: Annotated[float, Number(above=0, most=1e6, unit="nats")] = 4.0,
        budget: Count = 64,
        reach: Annotated[str, Choice(REACHES)] = "next",
        recent: Count = 32,
        sinks: CountOrZero = 4,
        block: Block = 16,
        coding: Coding | None = None,
    ) -> None:
        super().__init__(rank, centred=False, recent=recent, sinks=sinks, block=block, coding=coding)
        self.speculate, self.alpha, self.budget, self.reach = speculate, alpha, budget, reach
        self._questions: dict[int, Question] = {}
        self._answers: dict[int, bytes] = {}
        self._tickets: dict[int, int] = {}

    def attended(self, asked: AttentionRequest, near: Near, link: Link) -> Attended:
        layer, last = asked.layer, len(self.near) - 1
        if layer == 0:
            self._ask(range(last + 1 if self.reach == "all" else 1), asked, link, ahead=False)
        if self.reach == "next" and layer < last:
            self._ask([layer + 1], asked, link, ahead=True)
        question = self._questions.pop(layer)
        if layer in self._tickets:
            self._receive(self._tickets[layer], link)
        if layer not in self._answers:
            return self.joined(asked, near, no_rows(asked))
        parts = self.decoded(question, self._answers.pop(layer), asked.query.shape[1])
        return self.joined(asked, near, rows_of(question, parts))

    def _ask(self, layers: Sequence[int], asked: AttentionRequest, link: Link, *, ahead: bool) -> None:
        """What is wanted of each, together; of a layer of which nothing is, nothing is asked."""
        for layer in layers:
            own = layer == asked.layer
            query = asked.query if own else self.speculate(layer, asked.hidden, asked.position)
            chosen = self._wanted(layer, query)
            self._questions[layer] = self.question(layer, self.near[layer], chosen, Parts.BOTH)
        some = [layer for layer in layers if any(len(numbers) for numbers in self._questions[layer].chosen)]
        if some:
            ticket = link.send([self._questions[layer].encode() for layer in some], ahead=ahead)
            self._tickets.update(dict.fromkeys(some, ticket))

    def _receive(self, ticket: int, link: Link) -> None:
        layers = [layer for layer, its in self._tickets.items() if its == ticket]
        self._answers.update(zip(layers, link.receive(ticket), strict=True))
        for layer in layers:
            del self._tickets[layer]

    def _wanted(self, layer: int, query: Tensor) -> list[Tensor]:
        some = self.near[layer].candidates
        chosen = []
        for scores in self.scores(layer, query)[:, some]:
            count = int((scores >= scores.max() - self.alpha).sum()) if len(scores) else 0
            chosen.append(highest(scores, min(count, self.budget), some.start))
        return chosen


def main_directions(rows: Tensor, rank: Count, *, centred: bool) -> Tensor:
    """Orthonormal directions of the largest sums of squares of `rows`, largest first: [..., width, min(rank, width)].

    Args:
        rows: [..., positions, width]; without a position, the axes.
        centred: about the mean of the positions.
    """
    numbers = rows.double()
    if centred and rows.shape[-2]:
        numbers = numbers - numbers.mean(dim=-2, keepdim=True)
    # of ascending eigenvalues
    found = torch.linalg.eigh(numbers.transpose(-2, -1) @ numbers).eigenvectors
    return found.flip(-1)[..., :rank].to(rows.dtype)
