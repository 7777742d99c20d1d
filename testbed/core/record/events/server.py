"""Events of strategies with a server."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from testbed.core.record.events.base import Count, Counts, Number, Numbers, Reasons, StepEvent, Text


@dataclass(frozen=True, kw_only=True)
class Round(StepEvent, name="round"):
    """A round of the parameter server ended."""

    round: Count
    alpha: Number | None
    """Relative error bound; null without bounds."""
    model_bytes: Count
    """Encoded size of the model sent."""
    whole: bool
    """True if independent of what was sent."""
    back: Counts
    """Clients that rejoined."""
    clients: Count
    """Updates in the mean."""
    train_loss: Number | None
    """Mean loss of the clients."""
    update_bytes: Count
    """Encoded size of the updates."""
    left: Reasons
    """Reasons of those that take part no more."""
    bound: dict[str, Any] | None
    """Decision of the schedule of bounds, if any."""


@dataclass(frozen=True, kw_only=True)
class LastModel(StepEvent, name="last_model"):
    """The final model was sent."""

    round: Count
    model_bytes: Count
    """Encoded size of the model sent."""
    left: Reasons
    """Reasons of those that take part no more."""


@dataclass(frozen=True, kw_only=True)
class RegionRound(StepEvent, name="region_round"):
    """A round of a region's server ended."""

    round: Count
    region: Text
    """Region."""
    model_bytes: Count
    """Encoded size of the model sent. It came from rank 0, and went to each client of the region."""
    back: Counts
    """Clients that rejoined."""
    clients: Count
    """Updates in the mean."""
    train_loss: Number | None
    """Mean loss of the clients."""
    update_bytes: Count
    """Encoded size of the updates."""
    sent_bytes: Count
    """Encoded size of the mean sent up."""
    left: Reasons
    """Reasons of those that take part no more."""


@dataclass(frozen=True, kw_only=True)
class Gate(StepEvent, name="gate"):
    """`strategy.gate` decided whether to compress."""

    compress: bool
    """True if it compresses."""
    why: Text
    """`measuring`, `pays`, `no gain`, or `probe`. `probe`: it would not pay, and is measured again."""
    raw_s: Number | None
    compressed_s: Number | None
    """Predicted times; null until measured. Decoding is included."""
    round: Count
    direction: Text
    """`up`: from a client; `down`: to all."""


@dataclass(frozen=True, kw_only=True)
class FederatedRound(StepEvent, name="federated_round"):
    """A round of strategy=federated ended."""

    order_in_step: ClassVar[int] = 1

    round: Count
    asked: Count
    """Clients selected."""
    came: Count
    """Clients whose updates count; 0: the model stays, and there is no `round` event."""
    available: Count
    """Clients that could be selected."""
    late: Count
    dropped: Count
    """Clients cut at a deadline, and gone away."""
    waited_s: Number
    """Time without any client."""
    expected_s: Number | None
    """Expected time of the slowest worker."""
    longest_worker_s: Number
    """Reported time of the slowest worker."""
    all_clients_s: Number
    longest_client_s: Number
    """Sum, and longest, of clients' times. Those that were cut are included."""
    clients: Counts
    ranks: Counts
    """All clients counted, cut ones included, and their workers' ranks."""
    elapsed_s: Numbers
    """Times of these."""


@dataclass(frozen=True, kw_only=True)
class SecureRound(StepEvent, name="secure_round"):
    """A secure sum ended."""

    order_in_step: ClassVar[int] = 2
    round: Count
    workers: Count
    """Workers that gave shares."""
    survivors: Counts
    """Workers in the sum."""
    dropped: Reasons
    """Reasons of the others."""
    shares_s: Number
    """Time until shares were carried."""
    recovery_s: Number
    """Time from last update to sum."""
    share_bytes: Count
    masked_bytes: Count
    answer_bytes: Count
    """Bytes of shares, masked updates, answers, unframed. As many bytes of shares go on to others."""


@dataclass(frozen=True, kw_only=True)
class FedbuffVersion(StepEvent, name="fedbuff_version"):
    """A version of strategy=fedbuff's model."""

    version: Count
    """Number of the version, from 1."""
    clients: Counts
    """Clients whose updates made it."""
    workers: Count
    """Workers that take part."""
    staleness_mean: Number
    staleness_max: Count
    """Mean and largest staleness. It is the number of versions since a client began."""
    train_loss: Number | None
    """Mean loss of the clients. It is by samples."""
    model_bytes: Count
    """Encoded size of models since the last version."""
    update_bytes: Count
    """Encoded size of the updates."""
    all_clients_s: Number
    longest_client_s: Number
    """Sum, and longest, of clients' times."""
    left: Reasons
    """Reasons of those that take part no more."""
