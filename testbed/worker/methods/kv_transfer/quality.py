"""How near attention over what was fetched comes to exact attention: on the same states, and along a whole answer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor

from testbed.worker.methods.kv_transfer.cache.store import KVStore, LocalLink, Traffic
from testbed.worker.methods.kv_transfer.model.transformer import (
    Asked,
    Attend,
    DenseCache,
    KVTransformer,
    Prefilled,
    attention,
)
from testbed.worker.methods.kv_transfer.selection.selector import Attended, Selector


class Likeness(NamedTuple):
    """Of one layer at one step, a mean over its heads."""

    relative_error: float
    """|y - y'|_2 / |y|_2."""
    cosine: float
    mass_recall: float
    """Sum of exact attention weights of positions that were attended to."""
    overlap: float
    """Of as many positions of highest exact weight, how many were attended to: a share."""


@dataclass
class Report:
    """What one selector did on one text, step by step; shares and means are over steps, or steps and layers."""

    likenesses: list[Likeness] = field(default_factory=list)
    """On exact states: each step's and layer's."""
    kl_nats: list[float] = field(default_factory=list)
    """Of each step's next byte, D(exact || approximate), the approximation's own outputs going on to later layers."""
    matches: list[bool] = field(default_factory=list)
    """Of each step: the same most likely byte."""
    exact_nats: list[float] = field(default_factory=list)
    """Of each step but the last: what the text's next byte costs with exact attention."""
    approximate_nats: list[float] = field(default_factory=list)
    set_up_bytes: int = 0
    traffic: Traffic = field(default_factory=Traffic)
    """Of the approximation that went on."""

    @property
    def token_match(self) -> float:
        return sum(self.matches) / len(self.matches)

    @property
    def mean_kl_nats(self) -> float:
        return sum(self.kl_nats) / len(self.kl_nats)

    @property
    def perplexity_ratio(self) -> float:
        """Approximate / exact."""
        excess = sum(self.approximate_nats) - sum(self.exact_nats)
        return float(torch.tensor(excess / len(self.exact_nats)).exp())

    def mean(self, name: str) -> float:
        """Of one figure of `Likeness`."""
        return sum(getattr(likeness, name) for likeness in self.likenesses) / len(self.likenesses)


def likeness(asked: Asked, keys: Tensor, values: Tensor, found: Attended) -> Likeness:
    """
    Args:
        keys, values: all of the layer, [heads, length, head_width].
    """
    figures = []
    for head, positions in enumerate(found.positions):
        exact, weights = attention(asked.query[head], keys[head], values[head])
        error = (found.output[head] - exact).norm() / exact.norm()
        cosine = torch.cosine_similarity(found.output[head], exact, dim=0)
        best = weights.topk(len(positions)).indices
        overlap = torch.isin(best, positions).double().mean()
        figures.append(torch.stack([error, cosine, weights[positions].sum(), overlap]).double())
    return Likeness(*torch.stack(figures).mean(dim=0).tolist())


class Decoder:
    """A model, a selector and a store in one process, after a prefill that is far.

    Args:
        make: a new selector.
    """

    def __init__(self, model: KVTransformer, prefilled: Prefilled, make: Callable[[], Selector]) -> None:
        self.model, self.selector = model, make()
        self.link = LocalLink(KVStore(prefilled.keys, prefilled.values, self.selector.coding))
        message = self.selector.set_up(self.link.store)
        self.set_up_bytes = len(message)
        self.selector.start(message)

    def attend(self, asked: Asked) -> Attended:
        return self.selector.attend(asked, self.link)

    def step(self, byte: int, before: int, position: int) -> Tensor:
        return self.model.step(byte, before, position, lambda asked: self.attend(asked).output)


def compare(model: KVTransformer, text: Tensor, prefill: int, make: Callable[[], Selector]) -> Report:
    """Feed `text` byte by byte to exact attention and to a selector's, after a prefill of its first `prefill` bytes.

    Two selectors are made: one sees the exact states, and what it gives is measured and dropped; the outputs of the
    other go on. A prefill computes exactly for all.
    """
    prefilled = model.prefill(text[:prefill])
    dense = DenseCache(prefilled)
    beside, own = Decoder(model, prefilled, make), Decoder(model, prefilled, make)
    report = Report(set_up_bytes=own.set_up_bytes, traffic=own.link.traffic)
    for position in range(prefill, len(text)):
        byte, before = int(text[position]), int(text[position - 1])
        exact = model.step(byte, before, position, _measured(dense, beside, report.likenesses))
        found = own.step(byte, before, position)
        _judge(report, exact, found, int(text[position + 1]) if position + 1 < len(text) else None)
    return report


def generate(step: Callable[[int, int, int], Tensor], text: Sequence[int], count: int) -> list[int]:
    """The `count` most likely bytes, one after another; all of `text` but its last byte is known already.

    Args:
        step: of byte, the one before, and position, as `Decoder.step`.
    """
    written = list(text)
    for position in range(len(text) - 1, len(text) - 1 + count):
        before = written[position - 1] if position else 0
        written.append(int(step(written[position], before, position).argmax()))
    return written[len(text) :]


def answers(step: Callable[[int, int, int], Tensor], text: Tensor, asked_at: Tensor) -> Tensor:
    """What is most likely after each byte at `asked_at`, ascending, right answers given in between: [questions].

    All before the first of them is known already.
    """
    found = []
    for position in range(int(asked_at[0]), int(asked_at[-1]) + 1):
        logits = step(int(text[position]), int(text[position - 1]), position)
        if position in asked_at:
            found.append(logits.argmax())
    return torch.stack(found)


def needle_recall(model: KVTransformer, text: Tensor, asked_at: Tensor, make: Callable[[], Selector]) -> float:
    """Share of right answers: the haystack is prefilled, questions and answers are decoded.

    Args:
        text: [length], of one sample of `needle.Needles`.
        asked_at: [questions].
    """
    decoder = Decoder(model, model.prefill(text[: int(asked_at[0])]), make)
    found = answers(decoder.step, text, asked_at)
    return float((found == text[asked_at + 1]).double().mean())


def _measured(dense: DenseCache, beside: Decoder, likenesses: list[Likeness]) -> Attend:
    def attend(asked: Asked) -> Tensor:
        keys, values = dense.append(asked)
        likenesses.append(likeness(asked, keys, values, beside.attend(asked)))
        return torch.stack([attention(*head)[0] for head in zip(asked.query, keys, values, strict=True)])

    return attend


def _judge(report: Report, exact: Tensor, found: Tensor, following: int | None) -> None:
    exact, found = (logits.double().log_softmax(dim=0) for logits in (exact, found))
    report.kl_nats.append(float((exact.exp() * (exact - found)).sum()))
    report.matches.append(bool(exact.argmax() == found.argmax()))
    if following is not None:
        report.exact_nats.append(float(-exact[following]))
        report.approximate_nats.append(float(-found[following]))
