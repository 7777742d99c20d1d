"""The adaptive schedule of error bounds: as loose as losses allow, with a probe and a way back."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Annotated, Any

from testbed.core.declaration import Declared
from testbed.core.kinds import Number
from testbed.core.parameters import Count, Fraction, NotNegative, Positive, number, raise_all
from testbed.worker.methods.parameter_server.bounds.error_bounds import UPDATE
from testbed.worker.methods.parameter_server.bounds.rounds import (
    DIVERGENCE,
    EXPLORATION,
    PLATEAU,
    STEADY,
    VIOLATION,
    ClientFacts,
    RoundFacts,
    require_turn,
    required_loss,
    with_running,
)

TRIES = 3
"""Encodings of a round's broadcast that may be refused; then it goes raw."""
_MAX_RATIO = 4.0
"""A client's alpha is at most so many times that of the round, and the round's so many times the client's."""
_BAD_ROUNDS = 2
"""In a row, with a running loss far above its least, are a divergence."""


@dataclass
class _State:
    """Between two rounds. The fields' names are those of a checkpoint."""

    alpha: float
    was: float
    """Alpha when this round began."""
    round: int = 0
    running: list[float] = field(default_factory=list)
    """The running loss, of the last rounds (G)."""
    least: float | None = None
    """Of all the running loss has been."""
    steady: int = 0
    """Rounds in which nothing was wrong (ok)."""
    cooling: int = 0
    """Rounds until a plateau counts again (cool)."""
    bad: int = 0
    """Rounds in a row, up to the last, with a running loss far above its least."""
    refused: int = 0
    """Encodings, in this round."""
    lossless: bool = True
    lossless_uplink: bool = False
    restore: bool = False
    restores: int = 0
    good: bool = False


class AdaptiveBound(Declared):
    """Noise as large as the training bears, in terms of the update it blurs: alpha rises while all goes well, and falls
    where the loss stands still or held-out samples object.

    Ours. It has the aims of FedCSpc (Zhang et al., "FedCSpc: A Cross-Silo Federated Learning System With Error-Bounded
    Lossy Parameter Compression", IEEE TPDS 2025, doi 10.1109/TPDS.2025.3564736), whose abstract tells of an adaptive
    bound that is explored while training goes on, and whose rule is not public.

    - Before a broadcast: it is refused if the loss on held-out samples is not finite after it, or rises by more than
      tolerance * loss + slack; then alpha is multiplied by `decrease` (beta). The third refusal sends it raw.
    - After a round: the running loss is G = memory G + (1 - memory) loss. After a refusal the count of steady rounds
      begins anew. Otherwise, where G > (1 - plateau) G of `window` rounds ago, alpha is multiplied by `decrease`,
      unless it was for that reason in the last `window` rounds. Otherwise the round was steady; from `patience` (phi)
      steady ones on, alpha is multiplied by `increase` (gamma) in each. A round in which all went raw changes neither
      alpha nor the count. Over a few rounds alone a loss stands still by chance.
    - G > divergence * its least + slack in two rounds in a row, or anything not finite, but for what the probe has
      refused: alpha is `alpha_min`, the next round is raw both ways, and begins with the last good state. The running
      loss goes back with it, and the count of steady rounds begins anew.

    With a `fairness` (c) above 0 clients that lag send finer: a client's alpha is alpha * clip(exp(-c (its loss - mean
    loss)), 1/4, 4), within `alpha_min` and `alpha_max`. Losses are those of training in the last round, their mean is
    weighted by samples. A client that has none, or none that is finite, has alpha, and is not in the mean. Ours too, in
    the spirit of FedEFsz (Zhang et al., IEEE TPDS 36(12), 2025), whose heuristic is not public.

    The first broadcast is raw, since no update is known. The probe sees what the broadcast loses, not what uplinks do;
    that noise may be so large rests on their feedback. It begins tight: what is lost early delays all that follows.

    Args:
        alpha: Noise / update, both as RMS, in the first round.
        alpha_min: Least alpha.
        alpha_max: Largest alpha.
        decrease: Factor after a refusal or a stalled loss (beta).
        increase: Factor in a steady round (gamma).
        patience: Steady rounds before alpha rises (phi).
        window: Rounds over which the running loss is compared.
        tolerance: Allowed rise of the probe's loss, relative (tau).
        slack: Allowed rise of a loss, absolute. Within it, a loss near 0 is neither refused nor a divergence.
        memory: Share of the running loss kept per round.
        plateau: Share by which the loss has to fall within `window`.
        divergence: Multiple of the least running loss that is divergence.
        fairness: Refinement for clients that lag, per unit of loss. c of the paper; 0: all clients have alpha.

    Raises:
        ValueError: a parameter is out of its range; all of them, one a line. In `advance`: a loss is below 0.
    """

    basis = UPDATE
    probes = True

    def __init__(
        self,
        *,
        alpha: Positive = 0.5,
        alpha_min: Positive = 0.01,
        alpha_max: Positive = 0.8,
        decrease: Annotated[float, Number(above=0, below=1)] = 0.5,
        increase: Annotated[float, Number(above=1, below=math.inf)] = 1.04,
        patience: Count = 3,
        window: Count = 10,
        tolerance: NotNegative = 0.02,
        slack: NotNegative = 1e-3,
        memory: Fraction = 0.7,
        plateau: Fraction = 0.02,
        divergence: Annotated[float, Number(above=1, below=math.inf)] = 1.5,
        fairness: NotNegative = 0.0,
    ) -> None:
        raise_all(
            number("alpha_max", alpha_max, least=alpha_min, below=math.inf),
            number("alpha", alpha, least=alpha_min, most=alpha_max),
        )
        self._limits, self._decrease, self._increase = (alpha_min, alpha_max), decrease, increase
        self._patience, self._window, self._memory, self._plateau = patience, window, memory, plateau
        self._tolerance, self._slack, self._divergence, self._fairness = tolerance, slack, divergence, fairness
        self._state = _State(alpha, alpha)
        self._note: dict[str, Any] | None = None

    @property
    def alpha(self) -> float:
        return self._state.alpha

    @property
    def lossless(self) -> bool:
        return self._state.lossless

    @property
    def lossless_uplink(self) -> bool:
        return self._state.lossless_uplink

    @property
    def restore(self) -> bool:
        return self._state.restore

    @property
    def restores(self) -> int:
        return self._state.restores

    @property
    def good(self) -> bool:
        return self._state.good

    def client_alphas(self, clients: Sequence[ClientFacts]) -> list[float]:
        losses = [_finite(one.train_loss) for one in clients]
        known = [(one.weight, loss) for one, loss in zip(clients, losses, strict=True) if loss is not None]
        total = math.fsum(weight for weight, _ in known)
        mean = math.fsum(weight / total * loss for weight, loss in known)
        return [self.alpha if loss is None else self._alpha_of(loss - mean) for loss in losses]

    def accepts(self, loss: float, loss_encoded: float) -> bool:
        return math.isfinite(loss_encoded) and loss_encoded - loss <= self._tolerance * loss + self._slack

    def violated(self) -> None:
        state = self._state
        self._tighten()
        state.refused += 1
        state.lossless = state.lossless or state.refused >= TRIES

    def advance(self, facts: RoundFacts) -> None:
        state = self._state
        require_turn(state.round, facts)
        loss = required_loss(facts)
        was, raw, refused = state.was, state.lossless, max(state.refused, facts.violations)
        why = DIVERGENCE
        if facts.finite and math.isfinite(loss) and (facts.probe_loss is None or math.isfinite(facts.probe_loss)):
            self._follow(loss)
            adapted = STEADY if facts.raw and not refused else self._adapt(refused > 0)
            why = DIVERGENCE if state.bad >= _BAD_ROUNDS else adapted
        self._turn(why == DIVERGENCE)
        self._note = {
            "event": "bound",
            "round": facts.round,
            "was": was,
            "alpha": state.alpha,
            "why": why,
            "running_loss": state.running[-1] if state.running else None,
            "violations": refused,
            "lossless": raw,
            "restore": state.restore,
        }

    def note(self) -> dict[str, Any] | None:
        return self._note

    def state_dict(self) -> dict[str, Any]:
        return asdict(self._state)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._state = _State(**state)
        self._note = None

    def _alpha_of(self, lag: float) -> float:
        """
        Args:
            lag: a client's loss less the mean loss.
        """
        times = math.pow(_MAX_RATIO, max(-1.0, min(1.0, -self._fairness * lag / math.log(_MAX_RATIO))))
        return max(self._limits[0], min(self._limits[1], times * self.alpha))

    def _follow(self, loss: float) -> None:
        state = self._state
        running = with_running(state.running, loss, self._memory)
        # as far back as a plateau looks, from before the rounds that a divergence takes back
        state.running, now = running[-self._window - 1 - _BAD_ROUNDS :], running[-1]
        state.least = now if state.least is None else min(state.least, now)
        state.bad = state.bad + 1 if now > self._divergence * state.least + self._slack else 0

    def _adapt(self, refused: bool) -> str:
        """Alpha of the next round, as far as there is no divergence, and why."""
        state, why = self._state, STEADY
        if refused:
            state.steady, why = 0, VIOLATION
        elif state.cooling <= 0 and self._stands():
            self._tighten()
            state.cooling, state.steady, why = self._window, 0, PLATEAU
        else:
            state.steady += 1
            if state.steady >= self._patience and state.alpha < self._limits[1]:
                state.alpha, why = min(self._limits[1], self._increase * state.alpha), EXPLORATION
        state.cooling = max(0, state.cooling - 1)
        return why

    def _stands(self) -> bool:
        """Whether the running loss does."""
        running, back = self._state.running, self._window + 1
        return len(running) >= back and running[-1] > (1 - self._plateau) * running[-back]

    def _tighten(self) -> None:
        self._state.alpha = max(self._limits[0], self._decrease * self._state.alpha)

    def _turn(self, diverged: bool) -> None:
        """To the next round."""
        state = self._state
        if diverged:
            state.running = state.running[: len(state.running) - state.bad]
            state.alpha, state.bad, state.steady = self._limits[0], 0, 0
        state.lossless = state.lossless_uplink = state.restore = diverged
        state.good = not diverged and state.bad == 0
        state.restores = state.restores + 1 if diverged else 0 if state.good else state.restores
        state.round, state.refused, state.was = state.round + 1, 0, state.alpha


def _finite(loss: float | None) -> float | None:
    return loss if loss is not None and math.isfinite(loss) else None
