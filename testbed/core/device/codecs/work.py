"""Work of a rank that reduces one bucket."""

from __future__ import annotations

from dataclasses import dataclass


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
