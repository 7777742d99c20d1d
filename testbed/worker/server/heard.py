"""What stays of clients' updates once their tensors are in the mean."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from testbed.worker.server.decoders import Decoded
from testbed.worker.server.wire import coded_bytes, is_compressed


@dataclass(frozen=True)
class Heard:
    """Of one client."""

    train_loss: float
    update_rms: list[float]
    """By item."""
    coded_bytes: int
    decode_s: float | None
    """Emulated seconds that decoding its update took; None where nothing of it was compressed."""
    model_decode_s: float
    """That decoding the model took there, as it says."""

    @classmethod
    def of(cls, one: Decoded) -> Heard:
        return cls(
            one.frame.train_loss,
            [entry.update_rms for entry in one.entries],
            coded_bytes(one.entries),
            one.decode_s if is_compressed(one.entries) else None,
            one.frame.decode_s,
        )


def decode_s(round_: Collection[Heard], decoders: int) -> float:
    """Seconds until all updates would be decoded, were they all compressed; 0: none was. What a client has to reckon
    with when it decides whether to compress, since others do as it does."""
    taken_s = [one.decode_s for one in round_ if one.decode_s is not None]
    return len(round_) * sum(taken_s) / len(taken_s) / max(1, decoders) if taken_s else 0.0
