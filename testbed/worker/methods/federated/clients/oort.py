"""Guided selection of clients: those whose losses are high and who are fast, and now and then one of whom nothing is
known."""

from __future__ import annotations

import math
import random
from collections.abc import Collection, Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Annotated, Any

from testbed.core.declaration import checked
from testbed.core.kinds import Number
from testbed.core.parameters import Count, CountOrZero, Seconds, Share, number, raise_all
from testbed.worker.methods.federated.clients.sampling import weighted_sample

_MIN_UTILITY = 1e-9
"""Of the most: nobody is impossible to draw."""


@dataclass(frozen=True, kw_only=True)
class Report:
    """Of a client that took part in a round."""

    utility: float
    """Statistical: see `statistical_utility`."""
    duration_s: float
    """From being chosen to its update being there."""


@dataclass
class _Known:
    """What is known of a client."""

    utility: float
    duration_s: float
    round: int
    """In which it took part last, counted from 1."""
    times: int
    """That it has taken part."""


def statistical_utility(losses: Iterable[float]) -> float:
    """|B| sqrt(mean of loss²) of the losses of a client's samples, those of all batches of the round: what Oort takes
    for the norm of gradients, which would cost more to know.

    Raises:
        ValueError: there are none, or one is not finite.
    """
    squares = [loss * loss for loss in losses]
    if not squares or not math.isfinite(sum(squares)):
        raise ValueError("statistical utility: losses of samples must be there, and finite")
    return len(squares) * math.sqrt(math.fsum(squares) / len(squares))


@checked
@dataclass(kw_only=True)
class Oort:
    """Lai et al., "Oort: Efficient Federated Learning via Guided Participant Selection", OSDI 2021, arXiv:2010.06081,
    algorithm 1.

    Of `count` clients, a part (`exploration`, which decays) is drawn among those that have never taken part, by speed;
    the rest among those that have, by utility:

        (U + sqrt(0.1 ln R / L)) * (T / t)^penalty if t > T

    with U its last statistical utility, clipped at a quantile and scaled to [0, 1] among the known clients; R this
    round and L that in which it took part last, so that old knowledge is doubted; t its last duration, and T the
    preferred one. Of those whose utility is at least `cut_off` times that of the last one who would be chosen by rank,
    those to take part are drawn by utility. Every `window` rounds the pacer adds `pacer_step_s` to T if utility has
    fallen from the window before: slower clients are let in when the fast ones have no more to teach.

    Differs from the paper: U is scaled, as in the authors' code, without which ln R / L weighs nothing; T is in
    seconds, as in the paper, where their code has a percentile of durations; a client that has taken part `most_times`
    is left out of exploitation, unless too few are left; nothing is added for fairness; where one of the two groups is
    too small the other fills the round; the statistical utility is of all batches of a round, where FedScale's is of
    the last one (its issue #249).

    Raises:
        ValueError: a parameter is out of its range; all of them, one a line.
    """

    count: Count | None = None
    """Clients per round (K); null: `participants`."""
    exploration: Annotated[float, Number(least=0, most=1)] = 0.9
    """Share of new clients in a round (epsilon)."""
    exploration_decay: Share = 0.98
    """Factor of the exploration after each round."""
    least_exploration: Annotated[float, Number(least=0, most=1)] = 0.2
    """Least share of new clients."""
    preferred_s: Seconds = 10.0
    """Preferred duration of a client at first (T)."""
    pacer_step_s: Annotated[float, Number(least=0, below=math.inf, unit="s")] = 10.0
    """Step of T (Delta); 0: T stays."""
    window: Count = 20
    """Rounds that the pacer compares (W)."""
    penalty: Annotated[float, Number(least=0, most=100)] = 2.0
    """Exponent of the penalty for slowness (alpha); 0: none. It applies to clients slower than T."""
    cut_off: Annotated[float, Number(least=0, most=1)] = 0.95
    """Share of the last chosen utility that still qualifies (c). Clients are drawn from there on."""
    clip: Share = 0.95
    """Quantile at which utilities are clipped. It guards against a client that says too much."""
    most_times: Count = 10**9
    """Rounds after which a client is not chosen again."""
    seed: CountOrZero | None = None
    """Seed; null: the run's, or 0."""
    _round: int = field(default=0, init=False)
    """That were finished."""
    _clients: dict[int, _Known] = field(default_factory=dict, init=False)
    _gained: list[float] = field(default_factory=list, init=False)
    """Sum of utilities, of each round since the pacer's last window began."""

    def __post_init__(self) -> None:
        self.exploration = max(self.exploration, self.least_exploration)

    def of_run(self, count: int, seed: int) -> Oort:
        """A new one with these parameters that chooses so many, by the run's seed unless it has its own."""
        return replace(self, count=count, seed=seed if self.seed is None else self.seed)

    def choose(self, available: Collection[int], speeds: Mapping[int, float] | None = None) -> list[int]:
        """For the next round; changes nothing.

        Args:
            available: clients that may be chosen, in any order, which makes no difference.
            speeds: of those that have never taken part, in samples a second, or anything that is proportional to it.
                None: all alike.

        Returns:
            Ascending; fewer than `count` where fewer are available.

        Raises:
            ValueError: a speed is missing, or not above 0 and finite; all of them, one a line; or there is no `count`.
        """
        if self.count is None:
            raise ValueError("count=None: how many clients take part is not known; give it, or use `of_run`")
        chance = random.Random(f"oort {self.seed or 0} {self._round}")
        clients = sorted(available)
        known = [client for client in clients if client in self._clients]
        new = [client for client in clients if client not in self._clients]
        count = min(self.count, len(clients))
        exploring = min(round(self.exploration * count), len(new))
        exploiting = min(count - exploring, len(known))
        exploring = count - exploiting
        weights: Mapping[int, float] = dict.fromkeys(new, 1.0) if speeds is None else speeds
        chosen = weighted_sample(new, weights, exploring, chance) if exploring else []
        if exploiting:
            chosen += self._exploit(known, exploiting, chance)
        return sorted(chosen)

    def finish_round(self, reports: Mapping[int, Report]) -> None:
        """
        Args:
            reports: of those whose updates came; who was chosen and is not here is as it was.

        Raises:
            ValueError: a utility or duration is below 0 or not finite; all of them, one a line, and nothing changes.
        """
        raise_all(
            *(
                fault
                for client, report in sorted(reports.items())
                for fault in (
                    number(f"client {client}: utility", report.utility, least=0, below=math.inf),
                    number(f"client {client}: duration_s", report.duration_s, above=0, below=math.inf),
                )
            )
        )
        self._round += 1
        for client, report in sorted(reports.items()):
            times = self._clients[client].times if client in self._clients else 0
            self._clients[client] = _Known(report.utility, report.duration_s, self._round, times + 1)
        self._gained.append(math.fsum(report.utility for report in reports.values()))
        self._pace()
        self.exploration = max(self.exploration * self.exploration_decay, self.least_exploration)

    def utilities(self, clients: Collection[int]) -> dict[int, float]:
        """For the next round, of those of `clients` that have taken part."""
        known = {client: self._clients[client] for client in sorted(clients) if client in self._clients}
        if not known:
            return {}
        ranked = sorted(one.utility for one in known.values())
        most = ranked[min(int(len(ranked) * self.clip), len(ranked) - 1)]
        least = ranked[0]
        doubt = 0.1 * math.log(self._round + 1)
        found = {}
        for client, one in known.items():
            scaled = (min(one.utility, most) - least) / (most - least) if most > least else 1.0
            value = scaled + math.sqrt(doubt / one.round)
            slow = max(one.duration_s / self.preferred_s, 1.0)
            found[client] = value * slow**-self.penalty
        return found

    def state_dict(self) -> dict[str, Any]:
        """Plain data, between two rounds."""
        return {
            "round": self._round,
            "exploration": self.exploration,
            "preferred_s": self.preferred_s,
            "gained": list(self._gained),
            "clients": {client: asdict(known) for client, known in self._clients.items()},
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Of one with the same parameters."""
        self._round, self.exploration, self.preferred_s = state["round"], state["exploration"], state["preferred_s"]
        self._gained = list(state["gained"])
        self._clients = {int(client): _Known(**known) for client, known in state["clients"].items()}

    def _exploit(self, known: list[int], count: int, chance: random.Random) -> list[int]:
        fresh = [client for client in known if self._clients[client].times < self.most_times]
        utilities = self.utilities(fresh if len(fresh) >= count else known)
        ranked = sorted(utilities, key=lambda client: (-utilities[client], client))
        cut = self.cut_off * utilities[ranked[count - 1]]
        floor = _MIN_UTILITY * utilities[ranked[0]] or 1.0
        weights = {client: max(utilities[client], floor) for client in ranked if utilities[client] >= cut}
        return weighted_sample(sorted(weights), weights, count, chance)

    def _pace(self) -> None:
        if len(self._gained) < 2 * self.window:
            return
        before, now = sum(self._gained[: self.window]), sum(self._gained[self.window :])
        if before > now:
            self.preferred_s += self.pacer_step_s
        self._gained = self._gained[self.window :]
