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
    """One text was decoded, from rank 0 after the step."""

    tokens: Count
    """Bytes that were decoded."""
    found: Counts
    """The decoded bytes."""
    set_up_bytes: Count
    """Bytes that the KV server prepared first."""
    near_bytes: Count
    """Bytes of keys and values on the decode node at the end."""
    round_trips: Count
    """Round trips that were waited for at once."""
    round_trips_ahead: Count
    """Round trips with other work in between."""
    first_token_s: Number
    """Emulated seconds to the first byte."""
    token_s: Number | None
    """Emulated seconds for each byte after it; null if there is none."""
    questions: Count
    """Questions that the text contains."""
    right: Count
    """Questions that were answered correctly."""
    up_bytes: Count
    """Bytes sent by the decode node, frames included."""
    down_bytes: Count
    """Bytes that it received, frames included."""


@dataclass(frozen=True, kw_only=True)
class KvQuality(_TextEvent, name="kv_quality"):
    """The selector compared with exact attention on one text, after the last step. Means over steps, layers, heads."""

    token_match: Number
    """Share of steps with the same most likely byte."""
    kl_nats: Number
    """Kullback-Leibler divergence of the next byte's distribution."""
    relative_error: Number
    """Norm of the error of attention's output, over the output's norm."""
    cosine: Number
    """Cosine of both outputs."""
    mass_recall: Number
    """Share of exact attention's weight that the selector kept."""
    overlap: Number
    """Share of the positions with the largest weights that it kept."""
    exact_right: Count
    """Questions that exact attention answered correctly."""
