"""Fetching values alone: ShadowKV's way, whose keys are near in low rank."""

from __future__ import annotations

from typing import Annotated, NamedTuple

import torch
from torch import Tensor

from testbed.core.kinds import Number
from testbed.core.parameters import Count, CountOrZero
from testbed.worker.methods.kv_transfer.cache.messages import Parts
from testbed.worker.methods.kv_transfer.cache.store import Coding, Link
from testbed.worker.methods.kv_transfer.model.transformer import AttentionRequest, rotated
from testbed.worker.methods.kv_transfer.selection.low_dimension import main_directions
from testbed.worker.methods.kv_transfer.selection.selector import Attended, Block, Near, Rows, Selector, highest


class ShadowKV(Selector):
    """Keys are near in low rank and are rebuilt there; values of the chunks whose mean key scores best are fetched.

    Sun et al., "ShadowKV: KV Cache in Shadows for High-Throughput Long-Context LLM Inference", ICML 2025, arXiv
    2410.21465. Keys before their rotation, all heads side by side, have low rank: near are their coefficients in
    `rank` directions, found from the prefill. Near too are the mean of each chunk's rotated keys, its landmark, and
    whole those chunks that have a key least like it, by cosine; these are always attended to. Positions after the
    prefill are kept in the same directions. Values that an earlier step fetched are fetched again.

    Args:
        rotary_base: of the model.
        rank: directions of the keys of all heads; no more than there are dimensions are kept.
        chunk: positions.
        budget: chunks that are fetched for each head, at most.
        outliers: chunks of each head that are near whole.
    """

    def __init__(
        self,
        *,
        rotary_base: Annotated[float, Number(above=1, most=1e9)],
        rank: Count = 16,
        chunk: Block = 8,
        budget: Count = 8,
        outliers: CountOrZero = 2,
        recent: Count = 32,
        sinks: CountOrZero = 4,
        coding: Coding | None = None,
    ) -> None:
        super().__init__(recent=recent, sinks=sinks, block=chunk, coding=coding)
        self.rotary_base, self.rank, self.chunk, self.budget, self.outliers = rotary_base, rank, chunk, budget, outliers
        self._shadows: list[Shadow] = []

    def summarise(self, layer: int, keys: Tensor, values: Tensor) -> list[Tensor]:
        plain = self._plain(keys, 0)
        directions = main_directions(plain, self.rank, centred=False)
        chunks, chunk_values = (self._chunks(rows) for rows in (keys, values))
        landmarks = chunks.mean(dim=2)
        likeness = torch.cosine_similarity(chunks, landmarks[:, :, None], dim=-1).amin(dim=2)
        odd = (-likeness).topk(min(self.outliers, likeness.shape[1]), dim=1).indices.sort(dim=1).values
        marks = torch.zeros_like(likeness).scatter_(1, odd, 1.0)
        taken = odd[:, :, None, None].expand(-1, -1, *chunks.shape[2:])
        odd_rows = [rows.gather(1, taken).flatten(1, 2) for rows in (chunks, chunk_values)]
        return [directions, plain @ directions, landmarks, marks, *odd_rows]

    def keep(self, layer: int, summary: list[Tensor]) -> None:
        self._shadows[layer:] = [Shadow(*summary)]

    def grow(self, layer: int, keys: Tensor, values: Tensor) -> None:
        old = self._shadows[layer]
        coefficients = self._plain(keys, self.near[layer].far_length) @ old.directions
        landmarks = keys.mean(dim=1, keepdim=True)
        self._shadows[layer] = old._replace(
            coefficients=torch.cat([old.coefficients, coefficients]),
            landmarks=torch.cat([old.landmarks, landmarks], dim=1),
            odd=torch.cat([old.odd, old.odd.new_zeros(len(keys), 1)], dim=1),
        )

    def kept(self, layer: int) -> list[Tensor]:
        return list(self._shadows[layer])

    def attended(self, asked: AttentionRequest, near: Near, link: Link) -> Attended:
        shadow = self._shadows[asked.layer]
        scores = (shadow.landmarks @ asked.query[..., None])[..., 0]
        plain = [torch.nonzero(odd == 0)[:, 0] for odd in shadow.odd]
        chosen = [some[highest(of_head[some], self.budget)] for of_head, some in zip(scores, plain, strict=True)]
        question = self.question(asked.layer, near, chosen, Parts.VALUES, self.chunk)
        fetched = self.fetch(question, link, asked.query.shape[1])
        rows = []
        for head, (values,) in enumerate(fetched):
            positions = question.positions(head)
            keys = self._rebuilt(shadow, head, positions, asked.query.shape[1])
            rows.append(shadow.with_odd(head, self.chunk, Rows(positions, keys, values)))
        return self.joined(asked, near, rows)

    def _rebuilt(self, shadow: Shadow, head: int, positions: Tensor, channels: int) -> Tensor:
        of_head = shadow.directions[head * channels : (head + 1) * channels]
        return rotated(shadow.coefficients[positions] @ of_head.T, positions, self.rotary_base)

    def _plain(self, keys: Tensor, first: int) -> Tensor:
        """[positions, heads * head_width], as before their rotation."""
        positions = torch.arange(first, first + keys.shape[1])
        return rotated(keys, -positions, self.rotary_base).transpose(0, 1).flatten(1)

    def _chunks(self, rows: Tensor) -> Tensor:
        return rows.unflatten(1, (rows.shape[1] // self.chunk, self.chunk))


class Shadow(NamedTuple):
    """What is near of one layer's far positions."""

    directions: Tensor
    """[heads * head_width, rank]."""
    coefficients: Tensor
    """[positions, rank]."""
    landmarks: Tensor
    """[heads, chunks, head_width]."""
    odd: Tensor
    """[heads, chunks]: 1 where a chunk is near whole."""
    odd_keys: Tensor
    """[heads, positions of odd chunks, head_width]."""
    odd_values: Tensor

    def with_odd(self, head: int, chunk: int, rows: Rows) -> Rows:
        """Those of the odd chunks too."""
        odd = torch.nonzero(self.odd[head])[:, :1] * chunk + torch.arange(chunk)
        positions = torch.cat([rows.positions, odd.flatten()])
        order = positions.argsort()
        keys = torch.cat([rows.keys, self.odd_keys[head]])[order]
        return Rows(positions[order], keys, torch.cat([rows.values, self.odd_values[head]])[order])
