"""Events of strategy=kv_transfer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from testbed.core.record.events.base import Count, Counts, Number, StepEvent


@dataclass(frozen=True, kw_only=True)
class _TextEvent(StepEvent):
    text: Count
    """Number of the text."""

    def to_json(self) -> dict[str, Any]:
        """Return the line, in which `text` comes first since these events exist."""
        return {"text": self.text, **super().to_json()}


@dataclass(frozen=True, kw_only=True)
class KvText(_TextEvent, name="kv_text"):
    """One text was decoded."""

    tokens: Count
    """Bytes decoded."""
    found: Counts
    """The decoded bytes."""
    set_up_bytes: Count
    """Bytes prepared by the KV server."""
    near_bytes: Count
    """Bytes of keys and values kept near. On the decode node, at the end."""
    round_trips: Count
    round_trips_ahead: Count
    """Round trips waited for at once, and overlapped."""
    first_token_s: Number
    """Time to the first byte."""
    token_s: Number | None
    """Time per byte after it."""
    questions: Count
    right: Count
    """Questions, and correct answers."""
    up_bytes: Count
    down_bytes: Count
    """Bytes the decode node sent and received, framed."""


@dataclass(frozen=True, kw_only=True)
class KvQuality(_TextEvent, name="kv_quality"):
    """Selector against exact attention, on a text. At the end; means over steps, layers, heads."""

    token_match: Number
    """Share of steps with the same likeliest byte."""
    kl_nats: Number
    """Kullback-Leibler divergence of the next byte."""
    relative_error: Number
    """Norm of the output's error / the output's."""
    cosine: Number
    """Cosine of both outputs."""
    mass_recall: Number
    """Share of exact attention's weight kept."""
    overlap: Number
    """Share of the largest weights' positions kept."""
    exact_right: Count
    """Correct answers of exact attention."""
