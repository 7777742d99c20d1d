"""Orders in which positions of a pipeline compute micro-batches, and how long a step in such an order takes.

GPipe: Huang et al., NeurIPS 2019; 1F1B: Narayanan et al., PipeDream, SOSP 2019; interleaved: Narayanan et al., SC 2021
(arXiv:2104.04473), section 2.2. The executor of `strategy=hybrid` follows the same orders.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from testbed.core.parallelism.plan import GPIPE, INTERLEAVED, ONE_F_ONE_B, Plan


@dataclass(frozen=True)
class Action:
    """Forward or backward of one micro-batch on one stage."""

    is_forward: bool
    stage: int
    micro_batch: int


def actions(plan: Plan, position: int, micro_batches: int) -> tuple[Action, ...]:
    """Return a position's order of a step, in which micro-batches of each stage ascend.

    Args:
        micro_batches: A number for which the plan's schedule is fit; see `schedule_fault`.
    """
    stages = range(position, plan.stages, plan.pp)
    in_round = micro_batches // max(1, micro_batches // plan.pp) if plan.schedule == INTERLEAVED else micro_batches
    rounds = [range(first, first + in_round) for first in range(0, micro_batches, in_round)]
    forwards = [Action(True, stage, number) for numbers in rounds for stage in stages for number in numbers]
    backwards = [Action(False, stage, number) for numbers in rounds for stage in stages[::-1] for number in numbers]
    ahead = _ahead(plan, position, in_round, len(forwards))
    in_turn = [action for pair in zip(forwards[ahead:], backwards, strict=False) for action in pair]
    return (*forwards[:ahead], *in_turn, *backwards[len(backwards) - ahead :])


def _ahead(plan: Plan, position: int, in_round: int, total: int) -> int:
    """Return the number of forwards before the first backward is in turn."""
    behind = plan.pp - 1 - position
    if plan.schedule == GPIPE:
        return total
    return min(total, 2 * behind + (plan.chunks - 1) * in_round if plan.schedule == INTERLEAVED else behind)


# How long a step takes.


@dataclass(frozen=True, kw_only=True)
class Durations:
    """Seconds of one micro-batch, by stage; of its messages, by the boundary after a stage."""

    forward_s: Sequence[float]
    backward_s: Sequence[float]
    sent_s: Sequence[float]
    """Time for which a message, one way, occupies its link."""
    latency_s: Sequence[float]
    """Time that passes besides until it has arrived."""

    def alone(self) -> Durations:
        """Return the same with messages that take no time."""
        none = [0.0] * len(self.sent_s)
        return dataclasses.replace(self, sent_s=none, latency_s=none)


def ends_s(plan: Plan, micro_batches: int, of: Durations, begin_s: Sequence[float]) -> list[float]:
    """Return when each position has done its last action.

    Each position computes in its order. A message leaves when it is made and the link is free of those before it; both
    directions of a link are free of each other. Nothing else waits for a message.

    Args:
        begin_s: When each position may begin.
    """
    orders = _orders(plan.schedule, plan.pp, plan.stages, micro_batches)
    last = plan.stages - 1
    arrived = {True: [[math.nan] * micro_batches for _ in range(plan.stages)]}
    arrived[False] = [[math.nan] * micro_batches for _ in range(plan.stages)]
    arrived[True][0] = arrived[False][last] = [-math.inf] * micro_batches
    free = {True: [-math.inf] * plan.stages, False: [-math.inf] * plan.stages}
    seconds = {True: of.forward_s, False: of.backward_s}
    now, places, left = list(begin_s), [0] * plan.pp, sum(map(len, orders))
    while left:
        for position, order in enumerate(orders):
            time_s, place = now[position], places[position]
            while place < len(order):
                is_forward, stage, number = order[place]
                ready_s = arrived[is_forward][stage][number]
                if ready_s != ready_s:  # nan: it is not sent yet
                    break
                time_s = (ready_s if ready_s > time_s else time_s) + seconds[is_forward][stage]
                to, boundary = (stage + 1, stage) if is_forward else (stage - 1, stage - 1)
                if 0 <= to <= last:
                    lines = free[is_forward]
                    lines[boundary] = max(time_s, lines[boundary]) + of.sent_s[boundary]
                    arrived[is_forward][to][number] = lines[boundary] + of.latency_s[boundary]
                place += 1
            left -= place - places[position]
            now[position], places[position] = time_s, place
    return now


def period_s(plan: Plan, micro_batches: int, of: Durations, after_s: Sequence[float]) -> float:
    """Return how long a step takes that follows another one: a position begins as soon as it is done with the last.

    Args:
        after_s: What each position does after its last action, as summing gradients.
    """
    first = _and_after(ends_s(plan, micro_batches, of, [0.0] * plan.pp), after_s)
    second = _and_after(ends_s(plan, micro_batches, of, first), after_s)
    return max(b - a for a, b in zip(first, second, strict=True))


def least_s(plan: Plan, micro_batches: int, *, whole_s: float, longest_s: float, sent_s: float) -> float:
    """Return what `period_s` is never below.

    Args:
        whole_s: Forward and backward of one micro-batch on all stages.
        longest_s: The same of the busiest position.
        sent_s: All messages of one micro-batch, one way, latency included.
    """
    there_and_back_s = whole_s + 2 * sent_s
    if plan.schedule == GPIPE:
        return there_and_back_s + (micro_batches - 1) * longest_s
    if plan.schedule == ONE_F_ONE_B:  # the first position begins a micro-batch when the one pp before it is back
        return max(math.ceil(micro_batches / plan.pp) * there_and_back_s, micro_batches * longest_s)
    return max(there_and_back_s, micro_batches * longest_s)


def _and_after(ends: Sequence[float], after_s: Sequence[float]) -> list[float]:
    return [end + after for end, after in zip(ends, after_s, strict=True)]


@lru_cache(maxsize=256)
def _orders(schedule: str, pp: int, stages: int, micro_batches: int) -> tuple[tuple[tuple[bool, int, int], ...], ...]:
    """Return the order of each position, as tuples: these are looked at many times in a search."""
    plan = Plan(
        pp=pp, dp=1, tp=1, micro_batch=1, cuts=tuple(range(stages)), placement=tuple(range(pp)), schedule=schedule
    )
    return tuple(
        tuple((each.is_forward, each.stage, each.micro_batch) for each in actions(plan, position, micro_batches))
        for position in range(pp)
    )
