"""The model of workload `tiny_bert`, the text it reads, and how it is trained before: to tell hidden tokens.

A token is a frequent word of the standard library's source, with the blank before it, a line end with the indent after
it, or else a byte. One file of eight, by the hash of its name, is held out from all that is learnt. Left out is what
is hardly a program: tables of `encodings` and `pydoc_data`.
"""

from __future__ import annotations

import collections
import functools
import hashlib
import re
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor, nn

from testbed.core.errors import InputError
from testbed.worker.data.library_corpus import corpus_faults, corpus_files, library
from testbed.worker.data.pretrained.weights import Recipe, State, pretrained
from testbed.worker.model.chain import Chain, Readout, drawn
from testbed.worker.model.transformer_block import Block

KEYWORDS = (
    "if",
    "for",
    "return",
    "def",
    "not",
    "in",
    "and",
    "or",
    "is",
    "else",
    "elif",
    "import",
    "from",
    "class",
    "try",
    "except",
    "raise",
    "with",
    "while",
    "None",
    "True",
    "False",
    "pass",
    "as",
    "yield",
    "assert",
    "lambda",
    "del",
    "break",
    "continue",
    "self",
)
"""What is to be found; `self` is hardly less of a keyword than the others."""
LENGTH = 32
"""Tokens of a sample; the one in the middle is hidden."""
HIDDEN = 256
"""The token that stands for one that is hidden; below it are bytes."""
_VOCABULARY = 2_048
_HELD_OUT_OF = 8
_PIECE = re.compile(rb" ?[A-Za-z]+|\n *|[^A-Za-z]")
_LEFT_OUT = {"encodings", "pydoc_data"}
_WIDTH, _HEADS, _LAYERS = 64, 2, 8
_DEVIATION = 0.08
_HIDDEN_SHARE = 0.2
"""Of tokens, while it is trained before."""


class Text(NamedTuple):
    """Tokens of all files, one after another in the order of their names."""

    train: Tensor
    held_out: Tensor
    classes: Tensor
    """Of each token the index into `KEYWORDS`; -1: it is none."""
    sha256: str
    """Of tokens."""


@functools.cache
def text() -> Text:
    """
    Raises:
        InputError: the source is not there.
    """
    folder = library()
    if faults := corpus_faults(folder):
        raise InputError(*(f"workload tiny_bert: {fault}" for fault in faults))
    files = {path.relative_to(folder).as_posix(): path for path in corpus_files(folder)}
    return read_text({name: path.read_bytes() for name, path in files.items() if name.split("/")[0] not in _LEFT_OUT})


def read_text(files: dict[str, bytes]) -> Text:
    """
    Args:
        files: contents by name; which ones are held out follows from their names alone.
    """
    parts: dict[bool, list[bytes]] = {False: [], True: []}
    for name, content in sorted(files.items()):
        parts[hashlib.sha256(name.encode()).digest()[0] % _HELD_OUT_OF == 0].append(content)
    train, held_out = (b"\n".join(parts[is_held_out]) for is_held_out in (False, True))
    words = _words(train)
    classes = torch.full((_VOCABULARY,), -1)
    for word, token in words.items():
        if (name := word.decode().strip()) in KEYWORDS:
            classes[token] = KEYWORDS.index(name)
    learnt, unseen = _tokens(train, words), _tokens(held_out, words)
    digest = hashlib.sha256(learnt.numpy().tobytes() + unseen.numpy().tobytes())
    return Text(learnt, unseen, classes, digest.hexdigest())


def windows(tokens: Tensor, middles: Tensor) -> Tensor:
    """[samples, LENGTH] around these places."""
    return tokens[middles[:, None] + torch.arange(-LENGTH // 2, LENGTH // 2)].long()


def middles(tokens: Tensor, classes: Tensor, count: int, seed: int) -> Tensor:
    """So many places of keywords with room around them, drawn without repeating."""
    at = (classes[tokens.long()] >= 0).nonzero().flatten()
    at = at[(at >= LENGTH // 2) & (at < len(tokens) - LENGTH // 2)]
    return at[torch.randperm(len(at), generator=torch.Generator().manual_seed(seed))[:count]]


class Embedding(nn.Module):
    """Tokens by what they are and where they stand."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens = nn.Embedding(_VOCABULARY, _WIDTH)
        self.positions = nn.Embedding(LENGTH, _WIDTH)

    def forward(self, tokens: Tensor) -> Tensor:
        embedded: Tensor = self.tokens(tokens) + self.positions.weight
        return embedded


def untrained(random: torch.Generator) -> Chain:
    """Eight layers of width 64, and the token in the middle that is read."""
    return _chain(Readout(_WIDTH, len(KEYWORDS), at=LENGTH // 2), random)


class _AllTokens(nn.Module):
    """What may stand in each place."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(_WIDTH)
        self.head = nn.Linear(_WIDTH, _VOCABULARY)

    def forward(self, hidden: Tensor) -> Tensor:
        return self.norm(hidden)


def _chain(readout: nn.Module, random: torch.Generator) -> Chain:
    model = Chain(Embedding(), [Block(_WIDTH, _HEADS, causal=False) for _ in range(_LAYERS)], readout)
    drawn(model, random, _DEVIATION)
    return model


@functools.cache
def weights() -> State:
    """By masked tokens: Devlin et al., "BERT: Pre-training of Deep Bidirectional Transformers for Language
    Understanding", NAACL 2019, without the prediction of the next sentence; what is hidden is always the same token.

    Raises:
        InputError: the source is not there.
    """
    source = text()
    recipe = Recipe(
        name="tiny_bert",
        steps=1_000,
        batch_size=32,
        learning_rate=0.002,
        seed=1,
        data=source.sha256,
        source=Path(__file__),
    )

    def loss(model: nn.Module, random: torch.Generator) -> Tensor:
        size = (recipe.batch_size,)
        tokens = windows(
            source.train, torch.randint(LENGTH // 2, len(source.train) - LENGTH // 2, size, generator=random)
        )
        hidden = torch.rand(tokens.shape, generator=random) < _HIDDEN_SHARE
        assert isinstance(model, Chain) and isinstance(model.readout, _AllTokens)
        found = model.readout.head(model(tokens.masked_fill(hidden, HIDDEN))[hidden])
        return nn.functional.cross_entropy(found, tokens[hidden])

    return pretrained(recipe, lambda random: _chain(_AllTokens(), random), loss)


def _words(train: bytes) -> dict[bytes, int]:
    """The most frequent pieces of more than a byte; of equal ones those that come first in the alphabet."""
    counts = collections.Counter(piece for piece in _PIECE.findall(train) if len(piece) > 1)
    often = sorted(counts, key=lambda word: (-counts[word], word))[: _VOCABULARY - HIDDEN - 1]
    return {word: HIDDEN + 1 + index for index, word in enumerate(often)}


def _tokens(content: bytes, words: dict[bytes, int]) -> Tensor:
    def ids() -> Iterable[int]:
        for piece in _PIECE.findall(content):
            token = words.get(piece)
            if token is None:
                yield from piece
            else:
                yield token

    return torch.tensor(list(ids()), dtype=torch.int16)
