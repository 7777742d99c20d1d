"""Rounds in which bounds on the compression error change: what a server asks of their schedule, and tells it.

A round, as a parameter server drives it:

1. It goes back to its last good state if `restore`, and broadcasts, raw if `lossless`. Otherwise it encodes with
   `alpha`; if `probes`, it asks `accepts` with the losses on held-out samples before and after, says `violated` where
   that is false, and encodes anew, until it is true or the schedule has become `lossless`.
2. Clients train, and send what they have with `alpha`, or as `client_alphas` says; raw if `lossless_uplink`.
3. It tells the round's facts to `advance`. If `good` then, the state at which the round began is the last good one;
   before any was, the initial one is.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Protocol

from testbed.core.kinds import Kind, shown
from testbed.core.parameters import number, raise_all, whole

STEADY, EXPLORATION, PLATEAU, VIOLATION, DIVERGENCE = "steady", "exploration", "plateau", "violation", "divergence"
LOSS, DECAY = "loss", "decay"
"""Why alpha is what it is now; `LOSS` and `DECAY` of schedules that follow the loss or the round alone."""


@dataclass(frozen=True, kw_only=True)
class RoundFacts:
    """What a server knows of a round at its end.

    Raises:
        ValueError: a count is out of its range.
    """

    round: int
    """From 0."""
    train_loss: float
    """Mean of the clients', weighted by their samples; may be anything, as NaN."""
    probe_loss: float | None = None
    """On held-out samples, of what was to be broadcast; None: not asked for."""
    probe_loss_encoded: float | None = None
    """Of what clients made of that; None: not asked for, or broadcast raw."""
    finite: bool = True
    """Whether all new parameters are."""
    raw: bool = False
    """Nothing was compressed in either direction, whatever the schedule allowed: the round says nothing of alpha."""
    violations: int = 0
    """Of this round, those told by `violated` among them."""

    def __post_init__(self) -> None:
        raise_all(whole("round", self.round, 0), whole("violations", self.violations, 0))


@dataclass(frozen=True, kw_only=True)
class ClientFacts:
    """What a server knows of a client when it sets its bound.

    Raises:
        ValueError: the weight is out of its range.
    """

    weight: float
    """Of its part in the mean, above 0; all clients' have any sum."""
    train_loss: float | None = None
    """Of its last update; may be anything, as NaN. None: there is none yet."""

    def __post_init__(self) -> None:
        raise_all(number("weight", self.weight, above=0, below=math.inf))


class BoundSchedule(Protocol):
    """The tightness of bounds, round by round; the module says how a server drives it. Deterministic."""

    @property
    def basis(self) -> str:
        """What alpha is a share of: `UPDATE` or `RANGE`."""

    @property
    def alpha(self) -> float:
        """Of this round."""

    @property
    def probes(self) -> bool:
        """Whether `accepts` is worth the two evaluations that it takes."""

    @property
    def lossless(self) -> bool:
        """What is broadcast in this round is not compressed."""

    @property
    def lossless_uplink(self) -> bool:
        """Nor is what clients send."""

    @property
    def restore(self) -> bool:
        """This round begins with the last good state."""

    @property
    def restores(self) -> int:
        """In a row, with no good round between: what compression does not cause it does not cure."""

    @property
    def good(self) -> bool:
        """The state with which the last round began is one to go back to."""

    def client_alphas(self, clients: Sequence[ClientFacts]) -> list[float]:
        """Of each client of this round, in their order."""

    def accepts(self, loss: float, loss_encoded: float) -> bool:
        """Whether clients may have what is encoded, by the loss on held-out samples before and after."""

    def violated(self) -> None:
        """What was encoded was not accepted; `alpha` is another now, or the round `lossless`."""

    def advance(self, facts: RoundFacts) -> None:
        """The round is over; all properties are of the next one from here on.

        Raises:
            ValueError: `facts` are not of the round whose turn it is, or a loss is one that the schedule cannot follow.
        """

    def note(self) -> dict[str, Any] | None:
        """Of the last round, for the record: what alpha was and is now, and why. None: there was none since the start,
        or since a state was loaded."""

    def state_dict(self) -> dict[str, Any]:
        """Plain data, between two rounds."""

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Of a schedule with the same parameters."""


@dataclass(frozen=True)
class _ScheduleKind(Kind):
    type_text = "a schedule of bounds, given as {_target_: …}"
    bases = None

    def allows(self, value: object) -> bool:
        return hasattr(value, "client_alphas")


AnyBound = Annotated[BoundSchedule, _ScheduleKind()]


def require_turn(round_: int, facts: RoundFacts) -> None:
    """
    Raises:
        ValueError: `facts` are of another round.
    """
    if facts.round != round_:
        raise ValueError(f"round={facts.round}: the schedule of bounds is told each round once; it is at {round_}")


def required_loss(facts: RoundFacts) -> float:
    """
    Raises:
        ValueError: the training loss is below 0, where ratios of losses say nothing.
    """
    if facts.train_loss < 0:
        found = f"round {facts.round}: train_loss={shown(facts.train_loss)}"
        raise ValueError(f"{found}: this schedule of bounds goes by ratios of losses, from 0 up; use a fixed one")
    return facts.train_loss


def with_running(running: Sequence[float], loss: float, memory: float) -> list[float]:
    """The running mean goes on by one: `memory` of the last, the rest of `loss`; it begins with the first loss."""
    return [*running, memory * running[-1] + (1 - memory) * loss if running else loss]
