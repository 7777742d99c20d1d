"""Which keys and values a decode step fetches: all, none, or those that components or pages of keys speak for.

| method | near, besides sinks and window | asked for | round trips of a layer and step |
|---|---|---|---|
| `Dense` | - | everything, a step early | 1 ahead |
| `RecentWindow` | - | nothing | 0 |
| `SparQ` | mean of values | components of all keys, then keys and values of the best | 2 |
| `Quest` | bounds of each page's keys | keys and values of the best pages | 1 |

Methods that keep keys in few dimensions are in `low_dimension`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from testbed.core.parameters import Count, CountOrZero, Flag
from testbed.worker.methods.kv_transfer.cache.half_floats import half_above, half_below
from testbed.worker.methods.kv_transfer.cache.messages import Kind, Parts, Question, decode_blobs
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


class Dense(Selector):
    """Everything, at each step: exact attention, and the bytes that all else is compared with.

    No query is needed to ask for everything, so that the link is never idle: each layer's question for the next step
    leaves as soon as the layer is done with this one, and those of the first step leave together. So the answers of a
    whole step are under way or wait near, which takes as much room as the cache; methods that choose do without.
    """

    def __init__(
        self, *, recent: Count = 32, sinks: CountOrZero = 4, block: Block = 16, coding: Coding | None = None
    ) -> None:
        super().__init__(recent=recent, sinks=sinks, block=block, coding=coding)
        self._under_way: dict[int, tuple[Question, int]] = {}
        """By layer, the question and the ticket for its answer."""

    def attend(self, asked: AttentionRequest, link: Link) -> Attended:
        heads = len(asked.query)
        if asked.layer not in self._under_way:
            for layer in range(asked.layer, len(self.near)):
                self._ask(layer, heads, link, ahead=layer > asked.layer)
        attended = super().attend(asked, link)
        if self.last_position is not None and asked.position < self.last_position:
            self._ask(asked.layer, heads, link, ahead=True)
        return attended

    def attended(self, asked: AttentionRequest, near: Near, link: Link) -> Attended:
        if asked.layer not in self._under_way:
            return self.joined(asked, near, no_rows(asked))
        question, ticket = self._under_way.pop(asked.layer)
        (answer,) = link.receive(ticket)
        return self.joined(asked, near, rows_of(question, self.decoded(question, answer, asked.query.shape[1])))

    def _ask(self, layer: int, heads: int, link: Link, *, ahead: bool) -> None:
        """Ask for all that is far of a layer, if something is and nothing is under way."""
        length = self.near[layer].far_length
        if length and layer not in self._under_way:
            question = Question(Kind.EVERYTHING, layer, Parts.BOTH, heads, length)
            self._under_way[layer] = question, link.send([question.encode()], ahead=ahead)


class RecentWindow(Selector):
    """Nothing: attention to the first and the last positions alone.

    Xiao et al., "Efficient Streaming Language Models with Attention Sinks", ICLR 2024; positions keep their places
    here, where the paper counts within the window.
    """

    def __init__(
        self, *, recent: Count = 32, sinks: CountOrZero = 4, block: Block = 16, coding: Coding | None = None
    ) -> None:
        super().__init__(recent=recent, sinks=sinks, block=block, coding=coding)

    def attended(self, asked: AttentionRequest, near: Near, link: Link) -> Attended:
        return self.joined(asked, near, no_rows(asked))


class SparQ(Selector):
    """A few components of all keys tell which positions matter; those come whole, the mean value stands for the rest.

    Ribar et al., "SparQ Attention: Bandwidth-Efficient LLM Inference", ICML 2024, arXiv 2312.04985. With i1 the
    `components` largest |q|: s' = softmax(q[i1] K[:, i1]^T / sqrt(d |q[i1]|_1 / |q|_1)) over all positions; the best
    by s' are fetched, s = softmax of their exact scores, and y = a s V + (1 - a) mean(V), a the sum of s' over what is
    attended to. Sinks and window are always attended to and need no fetching. The mean is over all positions.

    Args:
        components: of each key that are asked for; r in the paper.
        budget: positions that are fetched for each head, at most.
        compensate: blend in the mean value; else y = s V.
    """

    def __init__(
        self,
        *,
        components: Count = 8,
        budget: Count = 64,
        compensate: Flag = True,
        recent: Count = 32,
        sinks: CountOrZero = 4,
        block: Block = 16,
        coding: Coding | None = None,
    ) -> None:
        super().__init__(recent=recent, sinks=sinks, block=block, coding=coding)
        self.components, self.budget, self.compensate = components, budget, compensate
        self._means: list[Tensor] = []

    def summarise(self, layer: int, keys: Tensor, values: Tensor) -> list[Tensor]:
        return [values.mean(dim=1) if values.shape[1] else values.new_zeros(values.shape[::2])]

    def keep(self, layer: int, summary: list[Tensor]) -> None:
        self._means[layer:] = summary

    def grow(self, layer: int, keys: Tensor, values: Tensor) -> None:
        far = self.near[layer].far_length
        self._means[layer] = (far * self._means[layer] + values.sum(dim=1)) / (far + values.shape[1])

    def kept(self, layer: int) -> list[Tensor]:
        return [self._means[layer]]

    def attended(self, asked: AttentionRequest, near: Near, link: Link) -> Attended:
        start = near.candidates.start
        if start == near.candidates.stop:
            return self.joined(asked, near, no_rows(asked))
        largest = [highest(query.abs(), self.components) for query in asked.query]
        weights = self._approximate(asked, near, largest, link)
        chosen = [highest(some[near.candidates], self.budget, start) for some in weights]
        question = self.question(asked.layer, near, chosen, Parts.BOTH)
        attended = self.joined(asked, near, rows_of(question, self.fetch(question, link, asked.query.shape[1])))
        return self._compensated(attended, weights, near, asked.layer) if self.compensate else attended

    def _approximate(self, asked: AttentionRequest, near: Near, largest: Sequence[Tensor], link: Link) -> list[Tensor]:
        """Of each head s' [length], after one round trip."""
        question = Question(
            Kind.COMPONENTS, asked.layer, Parts.KEYS, len(largest), near.far_length, chosen=tuple(largest)
        )
        (answer,) = link.receive(link.send([question.encode(asked.query.shape[1])]))
        blobs = decode_blobs(answer, len(largest))
        weights = []
        for head, chosen in enumerate(largest):
            query = asked.query[head]
            far = self.coding.others.decode(blobs[head], near.far_length, len(chosen), "keys")
            keys = torch.cat([far, near.keys[head][:, chosen]])
            weights.append(torch.softmax(keys @ query[chosen] / temperature(query, chosen), dim=0))
        return weights

    def _compensated(self, attended: Attended, weights: Sequence[Tensor], near: Near, layer: int) -> Attended:
        means = (near.far_length * self._means[layer] + near.values.sum(dim=1)) / near.length
        shares = [some[positions].sum() for some, positions in zip(weights, attended.positions, strict=True)]
        share = torch.stack(shares)[:, None]
        return attended._replace(output=share * attended.output + (1 - share) * means)


class Quest(Selector):
    """Whole pages, by the highest score that any key within a page's bounds could have.

    Tang et al., "Quest: Query-Aware Sparsity for Efficient Long-Context LLM Inference", ICML 2024, arXiv 2406.10774.
    Of each page and channel the least and the greatest key are near, rounded outwards to float16; a page's score is
    sum_j max(q_j least_j, q_j greatest_j), never below q k of a key k in it. The question names pages.

    Args:
        page: positions.
        budget: pages that are fetched for each head, at most.
    """

    def __init__(
        self,
        *,
        page: Block = 16,
        budget: Count = 4,
        recent: Count = 32,
        sinks: CountOrZero = 4,
        coding: Coding | None = None,
    ) -> None:
        super().__init__(recent=recent, sinks=sinks, block=page, coding=coding)
        self.page, self.budget = page, budget
        self._least: list[Tensor] = []
        self._greatest: list[Tensor] = []

    def summarise(self, layer: int, keys: Tensor, values: Tensor) -> list[Tensor]:
        return list(page_bounds(keys, self.page))

    def keep(self, layer: int, summary: list[Tensor]) -> None:
        self._least[layer:], self._greatest[layer:] = [summary[0]], [summary[1]]

    def grow(self, layer: int, keys: Tensor, values: Tensor) -> None:
        least, greatest = page_bounds(keys, self.page)
        self._least[layer] = torch.cat([self._least[layer], least], dim=1)
        self._greatest[layer] = torch.cat([self._greatest[layer], greatest], dim=1)

    def kept(self, layer: int) -> list[Tensor]:
        return [self._least[layer], self._greatest[layer]]

    def bounds(self, layer: int, query: Tensor) -> Tensor:
        """Of each head and page, [heads, pages]: no key there has a higher q k."""
        q = query[:, None]
        return torch.maximum(q * self._least[layer], q * self._greatest[layer]).sum(dim=-1)

    def attended(self, asked: AttentionRequest, near: Near, link: Link) -> Attended:
        chosen = [highest(scores, self.budget) for scores in self.bounds(asked.layer, asked.query)]
        question = self.question(asked.layer, near, chosen, Parts.BOTH, self.page)
        return self.joined(asked, near, rows_of(question, self.fetch(question, link, asked.query.shape[1])))


def page_bounds(keys: Tensor, page: Block) -> tuple[Tensor, Tensor]:
    """Least and greatest of each page, [heads, pages, head_width], as float32 that float16 holds exactly.

    Args:
        keys: [heads, positions, head_width], the positions whole pages.
    """
    pages = keys.unflatten(1, (keys.shape[1] // page, page)).double()
    if not pages.numel():
        empty = keys.new_zeros(keys.shape[0], 0, keys.shape[2])
        return empty, empty
    least, greatest = half_below(pages.amin(dim=2).numpy()), half_above(pages.amax(dim=2).numpy())
    return torch.from_numpy(least.astype(np.float32)), torch.from_numpy(greatest.astype(np.float32))


def temperature(query: Tensor, chosen: Tensor) -> float:
    """sqrt(d |q[chosen]|_1 / |q|_1): fewer components make scores smaller, so they are divided by less."""
    total = float(query.abs().sum())
    share = float(query[chosen].abs().sum()) / total if total else 1.0
    return math.sqrt(len(query) * share)
