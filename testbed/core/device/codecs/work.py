"""Work of a rank that reduces one bucket, and the time it takes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, kw_only=True)
class CodecWork:
    """Work of one round: encodings, decodings, and other operations on tensors, such as those of feedback."""

    encodes: int = 0
    """Number of encodings."""
    encoded: int = 0
    """Elements in all of them."""
    decodes: int = 0
    decoded: int = 0
    operations: int = 0
    """Number of operations on tensors outside of encodings and decodings."""
    operation_bytes: int = 0
    """Bytes that these read and write."""


@dataclass(frozen=True, kw_only=True)
class CodecTimes:
    """Seconds of reducing one bucket of `elements`, by round: (phase, seconds), in order."""

    elements: int
    rounds: tuple[tuple[str, float], ...]
    work: tuple[CodecWork, ...] = ()
    """Work of each round; empty in profiles of older versions."""

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> CodecTimes:
        rounds = tuple((str(phase), float(seconds)) for phase, seconds in data["rounds"])
        return cls(elements=data["elements"], rounds=rounds, work=tuple(CodecWork(**w) for w in data.get("work", ())))
