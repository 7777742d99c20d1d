"""All plans for so many ranks, each with its best placement and cuts, in the order of predicted time; and those
rejected, with why.

By the corrected model of `costs`. All cuts are tried where they are few. Of more, those of the fastest pipeline by its
closed form alone, which is what Li et al. look for ("AMP", NeurIPS 2022, arXiv:2210.07297), may leave one stage with
most of the parameters, which its replicas then take long to sum: cuts with smaller largest stages are tried too.
Placements are all tried up to eight ranks, but for those that equal links and memory, or a ring's rotation, make alike;
beyond that a seeded local search improves two starts, as Li et al. do with simulated annealing. Tensor groups lie
inside a region. Links as probed are all unlike, which makes eight ranks a matter of minutes; where only regions count
it is one of ten seconds.
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

from testbed.core.parallelism import schedules
from testbed.core.parallelism.costs import (
    Boundary,
    Cost,
    boundaries,
    corrected,
    corrected_total_s,
    layer_times_s,
    least_total_s,
)
from testbed.core.parallelism.cuts import Cuts, Fits, best_cuts, even_layers, messages_of
from testbed.core.parallelism.memory import in_flight, memory_faults, stage_need_bytes
from testbed.core.parallelism.placements import Placement, all_placements, starts, swapped_units
from testbed.core.parallelism.plan import INTERLEAVED, ONE_F_ONE_B, SCHEDULES, Plan, schedule_fault
from testbed.core.parallelism.problem import Problem
from testbed.core.parameters import choice, raise_all, whole

MAX_CUTS = 128
"""Cuts of one shape up to which all are tried."""


@dataclass(frozen=True, kw_only=True)
class Options:
    """
    Raises:
        ValueError: a number or a name is out of its range; all of it, one a line.
    """

    micro_batches: tuple[int, ...] | None = None
    """Those to try; None: all that divide."""
    schedules: tuple[str, ...] = (ONE_F_ONE_B,)
    """Of pipelines, those to try; one position alone accumulates gradients, as 1F1B has it."""
    chunks: int = 2
    """Stages at each position of an interleaved plan."""
    exhaustive_ranks: int = 8
    """Up to which all placements are tried."""
    tries: int = 400
    """Of a local search beyond."""
    seed: int = 0

    def __post_init__(self) -> None:
        raise_all(
            *(whole("micro_batches", each, 1) for each in self.micro_batches or ()),
            *(choice("schedules", each, SCHEDULES) for each in self.schedules),
            None if self.schedules else "schedules: none; give one or more",
            whole("chunks", self.chunks, 2),
            whole("exhaustive_ranks", self.exhaustive_ranks, 1),
            whole("tries", self.tries, 0),
        )


@dataclass(frozen=True)
class Shape:
    """A plan without its cuts and placement."""

    pp: int
    dp: int
    tp: int
    micro_batch: int
    schedule: str = ONE_F_ONE_B
    chunks: int = 1

    def __str__(self) -> str:
        return f"pp={self.pp} dp={self.dp} tp={self.tp} micro_batch={self.micro_batch} {self.schedule}"

    def plan(self, cuts: Cuts, placement: Placement) -> Plan:
        return Plan(
            pp=self.pp,
            dp=self.dp,
            tp=self.tp,
            micro_batch=self.micro_batch,
            cuts=cuts,
            placement=placement,
            schedule=self.schedule,
        )


@dataclass(frozen=True)
class Candidate:
    plan: Plan
    cost: Cost


@dataclass(frozen=True)
class Rejected:
    what: str
    reasons: tuple[str, ...]


@dataclass(frozen=True)
class Ranking:
    candidates: tuple[Candidate, ...]
    """The fastest first; one for each shape."""
    rejected: tuple[Rejected, ...]


@dataclass
class _Best:
    """Of one shape, over placements."""

    problem: Problem
    shape: Shape
    found: Candidate | None = None
    _cuts: dict[tuple[tuple[Boundary, ...], tuple[int, ...]], list[tuple[float, Cuts]]] = field(default_factory=dict)
    """By boundaries and limits of memory, cuts to be tried, and what a step of them is never below; the least first."""

    def look_at(self, placement: Placement) -> bool:
        """Whether it is the best so far."""
        shape, problem = self.shape, self.problem
        plan = shape.plan(even_layers([True] * len(problem.layers), shape.pp * shape.chunks), placement)
        between, limits = tuple(boundaries(plan, problem.links)), _limits(plan, problem)
        if self.found is not None and self._bound_s(plan, between) >= self.found.cost.total_s:
            return False
        key = (between, limits)
        if key not in self._cuts:
            worth = self._worth_trying(plan, between, limits)
            self._cuts[key] = sorted((least_total_s(shape.plan(cuts, placement), problem), cuts) for cuts in worth)
        before = self.found
        for least_s, cuts in self._cuts[key]:
            if self.found is not None and least_s >= self.found.cost.total_s:
                break
            self._take(shape.plan(cuts, placement))
        return self.found is not before

    def _take(self, plan: Plan) -> None:
        """Keep `plan` if it is better and fits memory."""
        better = self.found is None or corrected_total_s(plan, self.problem) < self.found.cost.total_s
        if better and not memory_faults(plan, self.problem):
            self.found = Candidate(plan, corrected(plan, self.problem))

    def _bound_s(self, plan: Plan, between: tuple[Boundary, ...]) -> float:
        """Return what no cuts are below: those of equal stages that send the least there is, without gradients."""
        times = layer_times_s(self.problem, self.shape.tp, self.shape.micro_batch)
        least = self.shape.micro_batch * min(layer.activation_bytes for layer in self.problem.layers)
        sent_s = sum(max(channel.seconds(least) for channel in boundary) for boundary in between)
        whole_s, count = sum(times), plan.micro_batches(self.problem.global_batch)
        longest_s = max(*times, whole_s / plan.pp)
        return schedules.least_s(plan, count, whole_s=whole_s, longest_s=longest_s, sent_s=sent_s)

    def _worth_trying(self, plan: Plan, between: tuple[Boundary, ...], limits: tuple[int, ...]) -> list[Cuts]:
        """Return all cuts where they are few. Elsewhere those that the closed form of a pipeline says are fastest, then
        the fastest whose largest stage has fewer parameters than that of the last, and so on, since replicas sum them;
        and evenly divided blocks, as others have them."""
        if math.comb(len(self.problem.layers) - 1, plan.stages - 1) <= MAX_CUTS:
            every = itertools.combinations(range(1, len(self.problem.layers)), plan.stages - 1)
            return [(0, *rest) for rest in every]
        problem, shape = self.problem, self.shape
        messages = messages_of(between, [shape.micro_batch * layer.activation_bytes for layer in problem.layers])
        times = layer_times_s(problem, shape.tp, shape.micro_batch)
        count = plan.micro_batches(problem.global_batch)
        fits = _fits(plan, problem, limits) if limits and shape.schedule != INTERLEAVED else None
        found, upto = [even_layers([layer.block for layer in problem.layers], plan.stages)], _parameters_upto(problem)

        def smaller(stage: int, first: int, end: int) -> bool:
            return upto[end] - upto[first] < largest and (fits is None or fits(stage, first, end))

        largest = upto[-1] + 1
        while (cuts := best_cuts(times, messages, count, smaller)) is not None:
            found.append(cuts)
            largest = max(upto[end] - upto[first] for first, end in itertools.pairwise((*cuts, len(times))))
            if shape.dp == 1:
                break
        return found


Report = Callable[[int, int], None]
"""Takes how many candidates are looked at, and how many there are."""


def search(problem: Problem, options: Options | None = None, report: Report = lambda done, total: None) -> Ranking:
    """Return all plans, the fastest first, and what was rejected.

    Args:
        options: None: as they are by default.
        report: Called after each candidate.
    """
    options = options or Options()
    candidates, rejected = list[Candidate](), list[Rejected]()
    asked = list(shapes(problem, options))
    for number, shape in enumerate(asked):
        report(number, len(asked))
        found = shape if isinstance(shape, Rejected) else place(problem, shape, options)
        if isinstance(found, Rejected):
            rejected.append(found)
        else:
            candidates.append(found)
    candidates.sort(key=lambda candidate: candidate.cost.total_s)
    return Ranking(tuple(candidates), tuple(rejected))


def shapes(problem: Problem, options: Options) -> Iterator[Shape | Rejected]:
    """All of them, in the order of tp, then pp, then micro-batch; and what cannot be one, with why."""
    world, batch = problem.world_size, problem.global_batch
    for tp in (tp for tp in problem.tensor_degrees if world % tp == 0):
        for pp in _divisors(world // tp):
            dp, what = world // tp // pp, f"pp={pp} dp={world // tp // pp} tp={tp}"
            if starts(problem.links, pp, dp, tp) == []:
                yield Rejected(what, (f"tp={tp}: regions of {problem.links.regions} do not divide into such groups",))
            elif pp > len(problem.layers):
                yield Rejected(what, (f"pp={pp}: the model has {len(problem.layers)} layers; each stage needs one",))
            elif batch % dp:
                yield Rejected(what, (f"global_batch={batch}: must be a multiple of dp={dp}",))
            else:
                yield from _of_degrees(problem, options, pp, dp, tp)


def place(problem: Problem, shape: Shape, options: Options) -> Candidate | Rejected:
    """The best placement of one shape, with the best cuts for it."""
    best = _Best(problem, shape)
    degrees = (shape.pp, shape.dp, shape.tp)
    if problem.world_size <= options.exhaustive_ranks:
        for placement in all_placements(problem, *degrees):
            best.look_at(placement)
    else:
        _improve(best, starts(problem.links, *degrees), options)
    return best.found or Rejected(str(shape), _memory_reasons(problem, shape))


def _of_degrees(problem: Problem, options: Options, pp: int, dp: int, tp: int) -> Iterator[Shape | Rejected]:
    each = problem.global_batch // dp
    for micro_batch in options.micro_batches or _divisors(each):
        for schedule in options.schedules if pp > 1 else (ONE_F_ONE_B,):
            shape = Shape(pp, dp, tp, micro_batch, schedule, options.chunks if schedule == INTERLEAVED else 1)
            if each % micro_batch:
                fault: str | None = f"global_batch={problem.global_batch}: must be a multiple of {dp * micro_batch}"
            elif pp * shape.chunks > len(problem.layers):
                fault = f"{pp * shape.chunks} stages: the model has {len(problem.layers)} layers; each needs one"
            else:
                fault = schedule_fault(schedule, pp, each // micro_batch)
            yield Rejected(str(shape), (fault,)) if fault else shape


def _improve(best: _Best, from_here: Iterable[Placement], options: Options) -> None:
    """Each start, and then swaps of two tensor groups in the best one, as long as they make it better."""
    for placement in from_here:
        best.look_at(placement)
    if best.found is None:
        return
    drawn, placement, tp = random.Random(options.seed), best.found.plan.placement, best.shape.tp
    for _ in range(options.tries):
        neighbour = swapped_units(placement, tp, drawn)
        if best.look_at(neighbour):
            placement = neighbour


def _parameters_upto(problem: Problem) -> list[int]:
    """Bytes of all layers before each, and of all."""
    return [0, *itertools.accumulate(layer.parameter_bytes for layer in problem.layers)]


def _limits(plan: Plan, problem: Problem) -> tuple[int, ...]:
    """The least memory of each position; none without limit."""
    memory = problem.memory_bytes
    if memory is None:
        return ()
    return tuple(min(memory[rank] for rank in plan.position_ranks(position)) for position in range(plan.pp))


def _fits(plan: Plan, problem: Problem, limits: tuple[int, ...]) -> Fits:
    kept = [plan.micro_batch * in_flight(plan, position, problem.global_batch) for position in range(plan.pp)]

    def fits(stage: int, first: int, end: int) -> bool:
        return sum(stage_need_bytes(problem, plan.tp, first, end, kept_samples=kept[stage])) <= limits[stage]

    return fits


def _memory_reasons(problem: Problem, shape: Shape) -> tuple[str, ...]:
    """Of even stages, where no placement and no cuts fit."""
    cuts = even_layers([True] * len(problem.layers), shape.pp * shape.chunks)
    placement = starts(problem.links, shape.pp, shape.dp, shape.tp)[0]
    faults = memory_faults(shape.plan(cuts, placement), problem)
    return ("memory: no cuts and placement fit", *(f"even stages, {fault}" for fault in faults))


def _divisors(number: int) -> list[int]:
    return [divisor for divisor in range(1, number + 1) if number % divisor == 0]
