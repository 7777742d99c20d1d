"""What clients say of their updates, and what taking these takes."""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass, field, replace
from typing import TypeVar

from testbed.worker.methods.parameter_server.bounds.error_bounds import mean_update_rms
from testbed.worker.methods.parameter_server.messages.decoders import Decoded
from testbed.worker.methods.parameter_server.messages.wire import coded_bytes, is_compressed

T = TypeVar("T")


@dataclass
class ClientReports:
    """In one round, by their numbers."""

    samples: dict[int, int] = field(default_factory=dict)
    losses: dict[int, float] = field(default_factory=dict)
    rms: dict[int, list[float]] = field(default_factory=dict)
    """By item."""
    decoding_s: dict[int, float] = field(default_factory=dict)
    """Emulated, of updates that are compressed."""
    coded_bytes: int = 0
    model_decode_s: float = 0.0
    """The longest that a client took to decode the model; 0: nothing of it was compressed."""

    def add(self, client: int, one: Decoded) -> None:
        self.samples[client], self.losses[client] = one.frame.samples, one.frame.train_loss
        self.rms[client] = [entry.update_rms for entry in one.entries]
        self.coded_bytes += coded_bytes(one.entries)
        self.model_decode_s = max(self.model_decode_s, one.frame.decode_s)
        if is_compressed(one.entries):
            self.decoding_s[client] = one.decode_s

    def only(self, clients: Collection[int]) -> ClientReports:
        """What these say; bytes are those of all, who have sent them."""

        def kept(told: dict[int, T]) -> dict[int, T]:
            return {client: value for client, value in told.items() if client in clients}

        return replace(
            self,
            samples=kept(self.samples),
            losses=kept(self.losses),
            rms=kept(self.rms),
            decoding_s=kept(self.decoding_s),
        )

    @property
    def train_loss(self) -> float:
        """Mean, weighted by samples; the same bits in whatever order they came."""
        weighted = math.fsum(self.samples[client] * loss for client, loss in self.losses.items())
        return weighted / sum(self.samples.values())

    @property
    def mean_rms(self) -> list[float]:
        clients = sorted(self.samples)
        by_item = zip(*(self.rms[client] for client in clients), strict=True)
        return [mean_update_rms(each, [self.samples[client] for client in clients]) for each in by_item]

    def decode_s(self, decoders: int) -> float:
        """Seconds until all updates would be decoded, were they all compressed; 0: none was. What a client has to
        reckon with when it decides whether to compress, since others do as it does."""
        taken_s = self.decoding_s.values()
        return len(self.samples) * sum(taken_s) / len(taken_s) / max(1, decoders) if taken_s else 0.0
