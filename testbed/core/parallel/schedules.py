"""In which order a position of a pipeline computes: forwards and backwards of its stages, micro-batch by micro-batch.

GPipe: Huang et al., NeurIPS 2019 (arXiv:1811.06965): all forwards, then all backwards. 1F1B: Narayanan et al.,
"PipeDream", SOSP 2019, in its flushed form: as many forwards as there are positions behind this one, then one of each
in turn. Interleaved: Narayanan et al., "Efficient Large-Scale Language Model Training on GPU Clusters Using
Megatron-LM", SC 2021 (arXiv:2104.04473), section 2.2: likewise, over rounds of micro-batches that go through all stages
of a position. Differs from the papers: GPipe's backwards come in the order of its forwards, so that messages of all
schedules pass a boundary in one order.
"""

from __future__ import annotations

from dataclasses import dataclass

from testbed.core.parallel.plan import GPIPE, INTERLEAVED, Plan


@dataclass(frozen=True)
class Action:
    is_forward: bool
    stage: int
    micro_batch: int


def actions(plan: Plan, position: int, micro_batches: int) -> tuple[Action, ...]:
    """Of a step of `micro_batches`, for which the plan's schedule is fit; of each stage micro-batches ascend."""
    stages = range(position, plan.stages, plan.pp)
    in_round = micro_batches // max(1, micro_batches // plan.pp) if plan.schedule == INTERLEAVED else micro_batches
    rounds = [range(first, first + in_round) for first in range(0, micro_batches, in_round)]
    forwards = [Action(True, stage, number) for numbers in rounds for stage in stages for number in numbers]
    backwards = [Action(False, stage, number) for numbers in rounds for stage in stages[::-1] for number in numbers]
    ahead = _ahead(plan, position, in_round, len(forwards))
    in_turn = [action for pair in zip(forwards[ahead:], backwards, strict=False) for action in pair]
    return (*forwards[:ahead], *in_turn, *backwards[len(backwards) - ahead :])


def _ahead(plan: Plan, position: int, in_round: int, total: int) -> int:
    """Forwards before the first backward is in turn."""
    behind = plan.pp - 1 - position
    if plan.schedule == GPIPE:
        return total
    return min(total, 2 * behind + (plan.chunks - 1) * in_round if plan.schedule == INTERLEAVED else behind)
