"""All plans for a problem side by side: in the order of the corrected model, and what each way of choosing takes."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from testbed.core.parallelism.baselines import amp_published, data_parallel, dt_fm, megatron
from testbed.core.parallelism.costs import Cost, corrected, published
from testbed.core.parallelism.links import links_to_json
from testbed.core.parallelism.memory import memory_faults
from testbed.core.parallelism.plan import INTERLEAVED, Plan
from testbed.core.parallelism.problem import Problem
from testbed.core.parallelism.search import Candidate, Options, Ranking, Rejected, Report, search

AUTO, MEGATRON, DT_FM, AMP, DATA_PARALLEL = "auto", "megatron", "dt_fm", "amp", "data_parallel"


RANKED: Mapping[str, Callable[[Problem, Options], Ranking]] = {AUTO: search, AMP: amp_published}
"""Those that put all plans in an order."""
_SINGLE: Mapping[str, Callable[[Problem, Options], Candidate | Rejected]] = {
    MEGATRON: megatron,
    DT_FM: dt_fm,
    DATA_PARALLEL: data_parallel,
}
WAYS = (AUTO, MEGATRON, DT_FM, AMP, DATA_PARALLEL)
"""Of choosing a plan. `amp` goes by AMP's own model, which knows no memory; all others by the corrected one."""


def choose(way: str, problem: Problem, options: Options, place: int = 1) -> Candidate | Rejected:
    """
    Args:
        way: of `WAYS`.
        place: in the order of one that is `RANKED`, from 1.
    """
    if way in RANKED:
        return _placed(RANKED[way](problem, options), way, place)
    return _SINGLE[way](problem, options)


@dataclass(frozen=True)
class Predicted:
    """A plan, and what both models say of it."""

    plan: Plan
    cost: Cost
    """By the corrected model."""
    published_s: float | None
    """Of a step, by AMP's; None: it has no such schedule."""
    memory_faults: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        return {
            **plan_to_json(self.plan),
            "predicted_s": self.cost.total_s,
            "parts_s": {name: getattr(self.cost, name) for name in ("pipe_s", "bubble_s", "link_s", "dp_s")},
            "published_s": self.published_s,
            "memory_bytes": list(self.cost.memory_bytes),
            "memory_faults": list(self.memory_faults),
        }


@dataclass(frozen=True)
class Comparison:
    problem: Problem
    ranked: tuple[Predicted, ...]
    """The fastest first, by the corrected model: of each shape its best placement and cuts."""
    rejected: tuple[Rejected, ...]
    choices: Mapping[str, Predicted | Rejected]
    """By all `WAYS`."""

    def to_json(self) -> dict[str, Any]:
        problem = self.problem
        return {
            "global_batch": problem.global_batch,
            "all_reduce": problem.all_reduce,
            "links": links_to_json(problem.links),
            "layers": [dataclasses.asdict(layer) for layer in problem.layers],
            "memory_limit_bytes": None if problem.memory_bytes is None else list(problem.memory_bytes),
            "plans": [one.to_json() for one in self.ranked],
            "choices": {
                name: _rejected_json(one) if isinstance(one, Rejected) else one.to_json()
                for name, one in self.choices.items()
            },
            "rejected": [_rejected_json(one) for one in self.rejected],
        }


def compare(problem: Problem, options: Options, report: Report = lambda done, total: None) -> Comparison:
    """Search once, and choose in every way.

    Args:
        report: Called after each candidate of the search, which takes most of the time.
    """
    ranking = search(problem, options, report)
    chosen = {way: _placed(ranking, way, 1) if way == AUTO else choose(way, problem, options) for way in WAYS}
    return Comparison(
        problem,
        tuple(predicted(one.plan, problem) for one in ranking.candidates),
        ranking.rejected,
        {name: one if isinstance(one, Rejected) else predicted(one.plan, problem) for name, one in chosen.items()},
    )


def predicted(plan: Plan, problem: Problem) -> Predicted:
    """
    Raises:
        ValueError: the plan does not fit the problem.
    """
    published_s = None if plan.schedule == INTERLEAVED else published(plan, problem).total_s
    return Predicted(plan, corrected(plan, problem), published_s, tuple(memory_faults(plan, problem)))


def plan_to_json(plan: Plan) -> dict[str, Any]:
    return {
        name: list(value) if isinstance(value, tuple) else value for name, value in dataclasses.asdict(plan).items()
    }


def plan_from_json(data: Mapping[str, Any]) -> Plan:
    """Of what `plan_to_json` and `Predicted.to_json` give.

    Raises:
        ValueError: it is none, or one that cannot be.
    """
    try:
        fields = {field.name: data[field.name] for field in dataclasses.fields(Plan)}
        return Plan(**{**fields, "cuts": tuple(fields["cuts"]), "placement": tuple(fields["placement"])})
    except (KeyError, TypeError) as error:
        raise ValueError(f"not a plan: {type(error).__name__}: {error}") from error


def _placed(ranking: Ranking, way: str, place: int) -> Candidate | Rejected:
    if place <= len(ranking.candidates):
        return ranking.candidates[place - 1]
    reasons = tuple(f"{one.what}: {reason}" for one in ranking.rejected for reason in one.reasons)
    return Rejected(f"place {place} of the {len(ranking.candidates)} plans that {way} finds", reasons)


def _rejected_json(one: Rejected) -> dict[str, Any]:
    return {"what": one.what, "reasons": list(one.reasons)}
