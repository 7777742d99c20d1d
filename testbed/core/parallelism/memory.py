"""What a plan needs of each device's memory, and why it does not fit.

Parameters, gradients and optimizer states of a stage, divided by tp, and what forward keeps for backward of all
micro-batches in flight: of GPipe all of them (Huang et al., NeurIPS 2019), of 1F1B as many as there are positions from
this one to the last (Narayanan et al., PipeDream, SOSP 2019), interleaved those of its warm-up (Narayanan et al., SC
2021). Buffers of collectives, fragmentation and the framework itself are not counted.
"""

from __future__ import annotations

import math

from testbed.core.parallelism.plan import GPIPE, INTERLEAVED, Plan
from testbed.core.parallelism.problem import Problem


def memory_bytes(plan: Plan, problem: Problem) -> tuple[int, ...]:
    """Of a rank of each position."""
    return tuple(sum(_parts(plan, problem, position)) for position in range(plan.pp))


def memory_faults(plan: Plan, problem: Problem) -> list[str]:
    """One line for each position that does not fit its ranks."""
    if problem.memory_bytes is None:
        return []
    faults = []
    for position in range(plan.pp):
        parameters, activations = _parts(plan, problem, position)
        least, rank = min((problem.memory_bytes[rank], rank) for rank in plan.position_ranks(position))
        if parameters + activations > least:
            faults.append(
                f"position {position}: {parameters} B of parameters, gradients and optimizer states and {activations} "
                f"B of activations of {in_flight(plan, position, problem.global_batch)} in flight; "
                f"rank {rank} has {least} B"
            )
    return faults


def in_flight(plan: Plan, position: int, global_batch: int) -> int:
    """The most micro-batches whose activations a position keeps; interleaved, of all its stages together."""
    count = plan.micro_batches(global_batch)
    if plan.schedule == GPIPE:
        return count
    if plan.schedule == INTERLEAVED:
        warm_up = 2 * (plan.pp - position - 1) + (plan.chunks - 1) * plan.pp
        return min(count * plan.chunks, warm_up + 1)
    return min(count, plan.pp - position)


def stage_need_bytes(problem: Problem, tp: int, first: int, end: int, *, kept_samples: int) -> tuple[int, int]:
    """Of a rank that holds the layers from `first` to before `end`: parameters and all that has their size, and
    activations.

    Args:
        kept_samples: those whose activations are kept at the same time.
    """
    layers = problem.layers[first:end]
    parameters = sum(layer.parameter_bytes for layer in layers) * (2 + problem.optimizer_states)
    return math.ceil(parameters / tp), math.ceil(kept_samples * sum(layer.kept_bytes for layer in layers) / tp)


def _parts(plan: Plan, problem: Problem, position: int) -> tuple[int, int]:
    """Of parameters and all that has their size, and of activations."""
    flying, count = in_flight(plan, position, problem.global_batch), plan.micro_batches(problem.global_batch)
    stages = [plan.layers_of_stage(stage, len(problem.layers)) for stage in range(position, plan.stages, plan.pp)]
    needs = [
        stage_need_bytes(problem, plan.tp, stage.start, stage.stop, kept_samples=plan.micro_batch) for stage in stages
    ]
    parameters, kept = (list(each) for each in zip(*needs, strict=True))
    # interleaved, of which stages they are changes: never more than all of the largest
    return sum(parameters), min(flying * max(kept), count * sum(kept))
