"""Schedules of error bounds that published work stands for: fixed, decaying, by the loss, by its plateaus.

The baselines of the adaptive one in `testbed.worker.methods.parameter_server.bounds.adaptive`: none asks a probe, none
goes back.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from testbed.core.declaration import Declared
from testbed.core.kinds import Choice, Whole
from testbed.core.parameters import Count, Fraction, Positive, number, raise_all, whole
from testbed.worker.methods.parameter_server.bounds.error_bounds import BASES, RANGE, UPDATE, share_of_levels
from testbed.worker.methods.parameter_server.bounds.rounds import (
    DECAY,
    LOSS,
    PLATEAU,
    STEADY,
    ClientFacts,
    RoundFacts,
    require_turn,
    required_loss,
    with_running,
)

_MAX_LEVELS = 2**15
Levels = Annotated[int, Whole(1, _MAX_LEVELS)]
"""SZ3 has twice as many bins: what it predicts may be off by the whole range, either way."""
_ROUNDING = 1e-9
"""Of products that are a hair more than the whole number that is meant."""


class OpenLoop(Declared):
    """What schedules share that neither ask a probe nor go back."""

    probes = lossless_uplink = restore = good = False
    restores = 0

    def __init__(self, alpha: float, basis: str) -> None:
        self.alpha, self.basis, self._round = alpha, basis, 0
        self._note: dict[str, Any] | None = None

    @property
    def lossless(self) -> bool:
        """Before the first round no update is known."""
        return self.basis == UPDATE and self._round == 0

    def client_alphas(self, clients: Sequence[ClientFacts]) -> list[float]:
        return [self.alpha] * len(clients)

    def accepts(self, loss: float, loss_encoded: float) -> bool:
        return True

    def violated(self) -> None:
        raise RuntimeError(f"{type(self).__name__} accepts everything; there is nothing to violate")

    def advance(self, facts: RoundFacts) -> None:
        require_turn(self._round, facts)
        was, self._round = self.alpha, self._round + 1
        self.alpha, why = self._next(facts)
        why = why if self.alpha != was else STEADY
        self._note = {"event": "bound", "round": facts.round, "was": was, "alpha": self.alpha, "why": why}

    def note(self) -> dict[str, Any] | None:
        return self._note

    def state_dict(self) -> dict[str, Any]:
        return {"round": self._round, "alpha": self.alpha}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._round, self.alpha, self._note = state["round"], state["alpha"], None

    def _next(self, facts: RoundFacts) -> tuple[float, str]:
        """Alpha from here on, and why if it changes."""
        return self.alpha, STEADY


class Fixed(OpenLoop):
    """The same in all rounds.

    With `basis` range and 0.01, what FedSZ recommends: Wilkins et al., "FedSZ: Leveraging Error-Bounded Lossy
    Compression for Federated Learning Communications", ICDCS 2024, arXiv:2312.13461. That compresses uplinks alone.

    Args:
        alpha: Bound, as a share of the basis.
        basis: Basis of alpha: each tensor's range, or its update.

    Raises:
        ValueError: a parameter is out of its range; all of them, one a line.
    """

    def __init__(self, *, alpha: Positive = 0.01, basis: Annotated[str, Choice(BASES)] = RANGE) -> None:
        super().__init__(alpha, basis)


class LinearDecay(OpenLoop):
    """From `alpha` in the first round down to `alpha_end` in round `rounds`, in equal steps, and no further.

    A decay over iterations, as in "Accelerating Communication in Deep Learning Recommendation Model Training with
    Dual-Level Adaptive Lossy Compression", arXiv:2407.04272. Differs from the paper: alike for all tensors, which there
    have levels of their own, and linear: its abstract does not say which way it goes.

    Args:
        alpha: Bound in the first round, as a share of the basis.
        alpha_end: Bound from round `rounds` on, at most alpha.
        rounds: Rounds until `alpha_end`.
        basis: Basis of alpha: each tensor's range, or its update.

    Raises:
        ValueError: a parameter is out of its range; all of them, one a line.
    """

    def __init__(
        self,
        *,
        alpha: Positive = 0.3,
        alpha_end: Positive = 0.01,
        rounds: Count = 20,
        basis: Annotated[str, Choice(BASES)] = UPDATE,
    ) -> None:
        raise_all(number("alpha_end", alpha_end, above=0, most=alpha))
        super().__init__(alpha, basis)
        self._ends, self._rounds = (alpha, alpha_end), rounds

    def _next(self, facts: RoundFacts) -> tuple[float, str]:
        done = min(1.0, self._round / self._rounds)
        return (1 - done) * self._ends[0] + done * self._ends[1], DECAY


class AdaQuantFL(OpenLoop):
    """As many quantisation levels as the loss asks for: s = ceil(sqrt(F_0 / F) s_0), finer as it falls.

    Jhunjhunwala et al., "Adaptive Quantization of Model Updates for Communication-Efficient Federated Learning", ICASSP
    2021, arXiv:2102.04487. Differs from the paper: levels are bins over the range of values, of which alpha = 1 / (2 s)
    is half of one, where it rounds at random; F is the mean training loss; there are `levels_max` at most. A loss that
    is not finite changes nothing, and F_0 is the first that is.

    Args:
        levels: Levels in the first round. s_0 of the paper; 50 make 1 % of the range.
        levels_max: Most levels.

    Raises:
        ValueError: a parameter is out of its range; all of them, one a line. In `advance`: a loss is below 0.
    """

    def __init__(self, *, levels: Levels = 50, levels_max: Levels = _MAX_LEVELS) -> None:
        raise_all(whole("levels", levels, 1, levels_max))
        super().__init__(share_of_levels(levels), RANGE)
        self._levels, self._most = levels, levels_max
        self._first: float | None = None
        """The first loss that was finite (F_0)."""

    def state_dict(self) -> dict[str, Any]:
        return {**super().state_dict(), "first_loss": self._first}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        super().load_state_dict(state)
        self._first = state["first_loss"]

    def _next(self, facts: RoundFacts) -> tuple[float, str]:
        loss = required_loss(facts)
        if not math.isfinite(loss):
            return self.alpha, LOSS
        first = self._first = loss if self._first is None else self._first
        finer = math.sqrt(first / loss) if loss else math.inf if first else 1.0
        levels = math.ceil(min(finer * self._levels, self._most) - _ROUNDING)
        return share_of_levels(max(1, levels)), LOSS


class DAdaQuant(OpenLoop):
    """Twice as many quantisation levels whenever the running loss stands still, and for each client as its weight asks.

    Hönig, Zhao, Mullins, "DAdaQuant: Doubly-adaptive quantization for communication-efficient Federated Learning",
    ICML 2022, arXiv:2111.00465. In time: G = psi G + (1 - psi) loss; where it is no less than `patience` rounds ago,
    the level q doubles, and stays for as many rounds. By client: q_i = sqrt(a / b) w_i^(2/3), with a the sum of
    w^(2/3) and b that of w^2 / q^2: the variance of the mean is what one level for all would give, with fewer bits.
    Differs from the paper: levels are bins over the range of values, of which alpha = 1 / (2 q) is half of one, where
    it rounds at random. A loss that is not finite is left out. It compresses uplinks alone, as `client_alphas` says.

    Args:
        levels: Levels in the first round.
        levels_max: Most levels. q of the paper, of a round; those of a client may be more.
        patience: Rounds without progress until levels double (phi).
        memory: Share of the running loss kept per round. psi of the paper.

    Raises:
        ValueError: a parameter is out of its range; all of them, one a line.
    """

    def __init__(
        self, *, levels: Levels = 1, levels_max: Levels = 256, patience: Count = 10, memory: Fraction = 0.9
    ) -> None:
        raise_all(whole("levels", levels, 1, levels_max))
        super().__init__(share_of_levels(levels), RANGE)
        self.levels = levels
        self._most, self._patience, self._memory = levels_max, patience, memory
        self._running: list[float] = []
        self._held = 0
        """Rounds since the level has changed."""

    def client_alphas(self, clients: Sequence[ClientFacts]) -> list[float]:
        largest = max((one.weight for one in clients), default=1.0)
        shares = [one.weight / largest for one in clients]
        a = math.fsum(share ** (2 / 3) for share in shares)
        b = math.fsum((share / self.levels) ** 2 for share in shares)
        return [share_of_levels(max(1, round(math.sqrt(a / b) * share ** (2 / 3)))) for share in shares]

    def state_dict(self) -> dict[str, Any]:
        own = {"levels": self.levels, "running": list(self._running), "held": self._held}
        return {**super().state_dict(), **own}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        super().load_state_dict(state)
        self.levels, self._running, self._held = state["levels"], list(state["running"]), state["held"]

    def _next(self, facts: RoundFacts) -> tuple[float, str]:
        self._held += 1
        if math.isfinite(facts.train_loss):
            self._running = with_running(self._running, facts.train_loss, self._memory)[-self._patience - 1 :]
        stands = len(self._running) > self._patience and self._running[-1] >= self._running[0]
        if stands and self._held >= self._patience and self.levels < self._most:
            self.levels, self._held = min(self._most, 2 * self.levels), 0
        return share_of_levels(self.levels), PLATEAU
