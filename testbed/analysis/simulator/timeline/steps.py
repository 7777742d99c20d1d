"""Steps of synchronous data parallelism until they are alike, and how long one takes then."""

from __future__ import annotations

from dataclasses import dataclass

from testbed.analysis.simulator.model.network import Network
from testbed.analysis.simulator.model.step_plan import StepPlan
from testbed.analysis.simulator.timeline.ranks import HalvedRank, Rank, SecondOrderRank

_MAX_STEPS = 8
_ALIKE = 1e-4
"""Steps that differ by less are alike: ranks that receive over the WAN lag behind after the first, and keep to it."""


@dataclass(frozen=True)
class StepTimes:
    """Of a step once steps are alike, on average over ranks."""

    step_s: float
    first_step_s: float
    exposed_s: float
    """Waiting for collectives."""


def follow(plan: StepPlan, network: Network) -> StepTimes:
    """Until steps are alike."""
    rank = _rank(plan, network)
    ended_s, waited_s = [0.0], [0.0]
    while not _are_alike(ended_s) and len(ended_s) <= _MAX_STEPS:
        if network.size > 1:
            rank.step()
        else:
            rank.now_s = rank.now_s + plan.compute_s
        ended_s.append(float(rank.now_s.mean()))
        waited_s.append(float(rank.waited_s.mean()))
    average_s = _average_s(rank)
    return StepTimes(ended_s[-1] - ended_s[-2] + average_s, ended_s[1], waited_s[-1] - waited_s[-2] + average_s)


def _average_s(rank: Rank) -> float:
    """Of averages of the parameters, spread over all steps."""
    if rank.plan.average is None or rank.carriers.size == 1:
        return 0.0
    before_s = float(rank.now_s.mean())
    rank.average()
    return rank.plan.average.share * (float(rank.now_s.mean()) - before_s)


def _rank(plan: StepPlan, network: Network) -> Rank:
    if plan.second_order is not None:
        return SecondOrderRank(plan, network)
    return HalvedRank(plan, network) if plan.is_halved else Rank(plan, network)


def _are_alike(ended_s: list[float]) -> bool:
    if len(ended_s) < 3:
        return False
    before_s, last_s = ended_s[-2] - ended_s[-3], ended_s[-1] - ended_s[-2]
    return abs(last_s - before_s) <= _ALIKE * last_s
