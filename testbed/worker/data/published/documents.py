"""Texts of several authors or chapters as one array of bytes, and samples that lie within one of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from testbed.worker.data.array_cache import Array

CONTEXT = 64
"""Number of bytes that a prediction can see."""
SYMBOLS = 128
"""Number of different bytes that a text may have: it is ASCII."""
_END, _TEST = 0, 1
"""Bytes that no text has: one after each training document, and one between them and the test part."""


class Corpus(NamedTuple):
    """Texts as they are trained and tested on."""

    text: Tensor
    """Bytes of everything, uint8."""
    starts: Tensor
    """Place in `text` of each training sample's first byte: (samples,) int64."""
    owners: Tensor
    """Number of the document that each training sample is of, from 0: (samples,) int64."""
    held_out: Tensor
    """Bytes of the test part, uint8."""


def packed(training: Sequence[str], test: str) -> Array:
    """Return training documents and the test part as one array of bytes.

    Raises:
        UnicodeEncodeError: A text is not ASCII.
    """
    content = "".join(f"{document}{chr(_END)}" for document in training) + chr(_TEST) + test
    return np.frombuffer(bytearray(content, "ascii"), dtype=np.uint8)


def corpus_of(array: Array) -> Corpus:
    """Return texts from the array of `packed`, whose memory they share."""
    middle = int(np.flatnonzero(array == _TEST)[0])
    ends = np.flatnonzero(array[:middle] == _END)
    begins = np.concatenate([[0], ends[:-1] + 1])
    counts = np.maximum(ends - begins - 1, 0) // CONTEXT  # the byte after the last is to be predicted
    owners = np.repeat(np.arange(len(ends)), counts)
    within = np.arange(len(owners)) - np.repeat(np.cumsum(counts) - counts, counts)
    text = torch.from_numpy(array)
    starts = torch.from_numpy(begins[owners] + within * CONTEXT)
    return Corpus(text, starts, torch.from_numpy(owners), text[middle + 1 :])


def sequences(text: Tensor, starts: Tensor) -> Tensor:
    """Return the bytes from each start on, (len(starts), CONTEXT + 1) int64: those seen, and the one after each."""
    return text[starts[:, None] + torch.arange(CONTEXT + 1)].long()
