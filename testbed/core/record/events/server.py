"""Events of strategies with a server: rounds, versions, regions, secure sums."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from testbed.core.record.events.base import Count, Counts, Number, Numbers, Reasons, StepEvent, Text


@dataclass(frozen=True, kw_only=True)
class Round(StepEvent, name="round"):
    """A round of the parameter server ended, from the server after the last step of the round."""

    round: Count
    alpha: Number | None
    """Error bound of the round, relative; null if no codec uses bounds."""
    model_bytes: Count
    """Encoded size of the model that was sent."""
    whole: bool
    """True if the model depended on nothing sent before."""
    back: Counts
    """Clients that rejoined and got a model of their own."""
    clients: Count
    """Number of updates in the mean."""
    train_loss: Number | None
    """Mean loss of these clients; null if the workload computes none."""
    update_bytes: Count
    """Encoded size of all updates."""
    left: Reasons
    """Clients that take part no more, and why."""
    bound: dict[str, Any] | None
    """Decision of the schedule of error bounds; null if no codec uses bounds."""


@dataclass(frozen=True, kw_only=True)
class LastModel(StepEvent, name="last_model"):
    """The model that all ranks end with was sent, after the last step."""

    round: Count
    model_bytes: Count
    """Encoded size of the model."""
    left: Reasons
    """Clients that take part no more, and why."""


@dataclass(frozen=True, kw_only=True)
class RegionRound(StepEvent, name="region_round"):
    """A round of one region's server ended, from that server after the last step of the round."""

    round: Count
    region: Text
    """Name of the region."""
    model_bytes: Count
    """Encoded size of the model that came, and that was sent to each client of the region."""
    back: Counts
    """Clients of the region that rejoined."""
    clients: Count
    """Number of updates in the region's mean."""
    train_loss: Number | None
    """Mean loss of these clients; null if the workload computes none."""
    update_bytes: Count
    """Encoded size of their updates."""
    sent_bytes: Count
    """Encoded size of the mean that went up to rank 0."""
    left: Reasons
    """Clients of the region that take part no more, and why."""


@dataclass(frozen=True, kw_only=True)
class Gate(StepEvent, name="gate"):
    """`strategy.gate` decided whether a message is compressed, from the rank that sends it."""

    compress: bool
    """True if it is compressed."""
    why: Text
    """`measuring`, `pays`, `no gain`, or `probe`: it would not pay, and is measured again."""
    raw_s: Number | None
    """Predicted emulated seconds uncompressed, decoding included; null until it was measured."""
    compressed_s: Number | None
    """Predicted emulated seconds compressed, decoding included; null until it was measured."""
    round: Count
    direction: Text
    """`up`: a client to the server. `down`: the server to all clients."""


@dataclass(frozen=True, kw_only=True)
class FederatedRound(StepEvent, name="federated_round"):
    """A round of strategy=federated ended, from the server. With `came` 0 the model stays, and there is no `round`."""

    order_in_step: ClassVar[int] = 1

    round: Count
    asked: Count
    """Clients that were selected."""
    came: Count
    """Clients whose updates count."""
    available: Count
    """Clients that could be selected."""
    late: Count
    """Clients that were cut at a deadline."""
    dropped: Count
    """Clients that went away."""
    waited_s: Number
    """Emulated seconds that the server waited for a client to come."""
    expected_s: Number | None
    """Expected emulated seconds of the slowest worker; null in the first round."""
    longest_worker_s: Number
    """Reported emulated seconds of the slowest worker."""
    all_clients_s: Number
    """Sum over all clients, those that were cut included."""
    longest_client_s: Number
    """Longest of these clients."""
    clients: Counts
    """Number of each of these clients."""
    ranks: Counts
    """Rank of the worker that ran each of them."""
    elapsed_s: Numbers
    """Emulated seconds of each of them there, to six digits."""


@dataclass(frozen=True, kw_only=True)
class SecureRound(StepEvent, name="secure_round"):
    """A secure sum of strategy.secure ended, from the server."""

    order_in_step: ClassVar[int] = 2
    round: Count
    workers: Count
    """Workers that gave shares."""
    survivors: Counts
    """Workers whose updates are in the sum."""
    dropped: Reasons
    """Reasons why others' updates are not in it, or who has not answered."""
    shares_s: Number
    """Emulated seconds until shares were carried."""
    recovery_s: Number
    """Emulated seconds from the last masked update to the sum."""
    share_bytes: Count
    """Bytes of the shares that were given, without frames; as many go on to others."""
    masked_bytes: Count
    """Bytes of masked updates, without frames."""
    answer_bytes: Count
    """Bytes of answers, without frames."""


@dataclass(frozen=True, kw_only=True)
class FedbuffVersion(StepEvent, name="fedbuff_version"):
    """A version of strategy=fedbuff's model, from the server."""

    version: Count
    """Number of the version, from 1."""
    clients: Counts
    """Clients whose updates made it, in the order in which they came."""
    workers: Count
    """Workers that take part."""
    staleness_mean: Number
    """Mean number of versions since a client began."""
    staleness_max: Count
    """Largest of these numbers."""
    train_loss: Number | None
    """Mean loss of the clients, by samples; null if the workload computes none."""
    model_bytes: Count
    """Encoded size of all models sent since the last version."""
    update_bytes: Count
    """Encoded size of the updates."""
    all_clients_s: Number
    """Sum of the clients' emulated seconds."""
    longest_client_s: Number
    """Longest of them."""
    left: Reasons
    """Workers that take part no more, and why."""
