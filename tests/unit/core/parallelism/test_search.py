"""The search against all plans there are, what it rejects, and what it is compared with."""

from __future__ import annotations

import itertools
import random

import pytest

from testbed.core.parallelism.baselines import amp_published, data_parallel, dt_fm, dt_fm_cost_s, megatron
from testbed.core.parallelism.costs import corrected, published
from testbed.core.parallelism.memory import memory_faults
from testbed.core.parallelism.placements import alike, all_placements, starts
from testbed.core.parallelism.plan import GPIPE, INTERLEAVED, ONE_F_ONE_B, SEARCHED, Plan
from testbed.core.parallelism.problem import LayerProfile, LinkMatrix, Problem
from testbed.core.parallelism.search import Candidate, Options, Rejected, search

LAYERS = tuple(
    LayerProfile(str(i), {1: time}, parameters, sent)
    for i, (time, parameters, sent) in enumerate([(0.01, 400_000, 9000), (0.02, 100_000, 9000), (0.03, 200_000, 3000)])
)


def _unlike(ranks: int, regions: str, seed: int = 3) -> LinkMatrix:
    """No two links are the same."""
    drawn = random.Random(seed)

    def matrix(low: float, high: float) -> tuple[tuple[float, ...], ...]:
        return tuple(tuple(drawn.uniform(low, high) for _ in range(ranks)) for _ in range(ranks))

    return LinkMatrix(tuple(regions), matrix(0.0, 0.02), matrix(2e6, 60e6))


def _regions(regions: str, across_bit_s: float = 20e6, alpha_s: float = 0.01) -> LinkMatrix:
    return LinkMatrix.of_regions(
        regions, lambda a, b: 0.0 if a == b else alpha_s, lambda a, b: 1e9 if a == b else across_bit_s
    )


def _brute_force_s(problem: Problem) -> dict[tuple[int, int, int, int], float]:
    """The least time of each pp, dp, tp and micro-batch."""
    found: dict[tuple[int, int, int, int], float] = {}
    size, layers = problem.world_size, len(problem.layers)
    degrees = [d for d in itertools.product(range(1, size + 1), repeat=3) if d[0] * d[1] * d[2] == size]
    for (pp, dp, tp), micro_batch in itertools.product(degrees, range(1, problem.global_batch + 1)):
        for rest in itertools.combinations(range(1, layers), pp - 1):
            for placement in itertools.permutations(range(size)):
                plan = Plan(pp=pp, dp=dp, tp=tp, micro_batch=micro_batch, cuts=(0, *rest), placement=placement)
                inside = all(len({problem.links.regions[r] for r in group}) == 1 for group in plan.tensor_groups)
                try:
                    cost = corrected(plan, problem)
                except ValueError:
                    continue
                if inside and not memory_faults(plan, problem):
                    key = (pp, dp, tp, micro_batch)
                    found[key] = min(found.get(key, cost.total_s), cost.total_s)
    return found


@pytest.mark.parametrize("memory", [None, (2_000_000, 1_700_000, 2_900_000, 1_700_000)])
def test_no_plan_of_four_unlike_ranks_is_better(memory: tuple[int, ...] | None) -> None:
    layers = (*LAYERS, LAYERS[1])
    problem = Problem(layers=layers, links=_unlike(4, "aabb"), global_batch=8, memory_bytes=memory)
    ranking = search(problem)
    found = {(p.pp, p.dp, p.tp, p.micro_batch): c.cost.total_s for c in ranking.candidates for p in [c.plan]}
    assert found == pytest.approx(_brute_force_s(problem))
    assert len(found) == (4 if memory else 6)
    times = [candidate.cost.total_s for candidate in ranking.candidates]
    assert times == sorted(times)


def test_tensor_groups_lie_inside_a_region() -> None:
    layers = tuple(LayerProfile("", {1: 0.1, 2: 0.05, 3: 0.04, 4: 0.03}, 1000, 1000) for _ in range(2))
    problem = Problem(layers=layers, links=_unlike(4, "abba"), global_batch=4)
    ranking = search(problem)
    found = {(p.pp, p.dp, p.tp, p.micro_batch): c.cost.total_s for c in ranking.candidates for p in [c.plan]}
    assert found == pytest.approx(_brute_force_s(problem))
    assert {key[2] for key in found} == {1, 2}
    assert any("do not divide into such groups" in r.reasons[0] for r in ranking.rejected if "tp=4" in r.what)


def test_what_cannot_be_is_kept_with_why() -> None:
    problem = Problem(layers=LAYERS, links=_regions("aabb"), global_batch=6, memory_bytes=(2_300_000,) * 4)
    rejected = {each.what: each.reasons for each in search(problem).rejected}
    assert rejected["pp=4 dp=1 tp=1"] == ("pp=4: the model has 3 layers; each stage needs one",)
    assert rejected["pp=1 dp=4 tp=1"] == ("global_batch=6: must be a multiple of dp=4",)
    assert "1f1b: 1 micro-batches" in rejected["pp=2 dp=2 tp=1 micro_batch=3 1f1b"][0]
    problem = Problem(layers=LAYERS, links=_regions("aabb"), global_batch=4, memory_bytes=(2_300_000,) * 4)
    ranking = search(problem, Options(micro_batches=(1, 3)))
    rejected = {each.what: each.reasons for each in ranking.rejected}
    memory = rejected["pp=1 dp=4 tp=1 micro_batch=1 1f1b"]
    assert memory[0] == "memory: no cuts and placement fit"
    assert "position 0: 2800000 B of parameters" in memory[1] and "rank 0 has 2300000 B" in memory[1]
    assert "multiple of 6" in rejected["pp=2 dp=2 tp=1 micro_batch=3 1f1b"][0]
    assert [candidate.plan.pp for candidate in ranking.candidates] == [2]


def test_cuts_go_by_the_memory_of_where_a_stage_is_placed() -> None:
    layers = (*LAYERS, LAYERS[0])
    memory = (1_650_000, 2_900_000, 1_650_000, 2_900_000)
    problem = Problem(layers=layers, links=_regions("aaaa"), global_batch=4, memory_bytes=memory)
    found = {(c.plan.pp, c.plan.dp, c.plan.tp, c.plan.micro_batch): c.cost.total_s for c in search(problem).candidates}
    assert found == pytest.approx(_brute_force_s(problem)) and (2, 2, 1, 1) in found
    # interleaved, cuts are found without memory, and rejected with it
    options = Options(schedules=(INTERLEAVED,), micro_batches=(1,))
    tight = Problem(layers=layers, links=_regions("aa"), global_batch=4, memory_bytes=(2_300_000,) * 2)
    assert [rejected.what for rejected in search(tight, options).rejected][
        -1
    ] == "pp=2 dp=1 tp=1 micro_batch=1 interleaved"


def test_schedules_are_tried_of_pipelines_alone() -> None:
    layers = LAYERS * 2
    problem = Problem(layers=layers, links=_regions("aabb"), global_batch=4)
    options = Options(schedules=(GPIPE, ONE_F_ONE_B, INTERLEAVED), micro_batches=(1,))
    tried = {(c.plan.pp, c.plan.schedule) for c in search(problem, options).candidates}
    assert tried == {(1, ONE_F_ONE_B), *itertools.product((2, 4), (GPIPE, ONE_F_ONE_B)), (2, INTERLEAVED)}


def test_placements_that_are_alike_are_left_out() -> None:
    layers, even = LAYERS, _regions("aabb")
    problem = Problem(layers=layers, links=even, global_batch=4)
    assert alike(problem) == [[0, 1], [2, 3]]
    # aabb, abab, abba and bbaa: baab and baba are the same rings
    assert len(list(all_placements(problem, 4, 1, 1))) == 6
    assert len(list(all_placements(problem, 2, 2, 1))) == 4
    assert len(list(all_placements(problem, 2, 1, 2))) == 2
    # what they share tells regions apart, where links are all alike
    flat = _regions("aabb", across_bit_s=1e9, alpha_s=0.0)
    assert alike(Problem(layers=layers, links=flat, global_batch=4)) == [[0, 1], [2, 3]]
    assert alike(Problem(layers=layers, links=even, global_batch=4, memory_bytes=(1, 2, 2, 2))) == [[0], [1], [2, 3]]
    assert len(list(all_placements(Problem(layers=layers, links=_unlike(4, "aabb"), global_batch=4), 4, 1, 1))) == 24


def test_local_search_finds_what_trying_all_finds() -> None:
    problem = Problem(layers=LAYERS * 2, links=_unlike(6, "aabbcc"), global_batch=6)
    every = search(problem, Options(micro_batches=(1,)))
    local = search(problem, Options(micro_batches=(1,), exhaustive_ranks=1, seed=1))
    assert local.candidates[0].cost.total_s == pytest.approx(every.candidates[0].cost.total_s, rel=0.05)
    again = search(problem, Options(micro_batches=(1,), exhaustive_ranks=1, seed=1))
    assert again == local


def test_starts_keep_regions_together_or_spread_them() -> None:
    assert starts(_regions("abab"), 2, 2, 1) == [(0, 2, 1, 3), (0, 1, 2, 3)]
    # ranks of one region that are nearest by their links
    near = [[1.0 if i % 2 == j % 2 else 9.0 for j in range(4)] for i in range(4)]
    links = LinkMatrix(("a",) * 4, tuple(map(tuple, near)), ((1e6,) * 4,) * 4)
    assert starts(links, 2, 2, 1) == [(0, 1, 2, 3), (0, 2, 1, 3)]
    assert starts(_regions("aabb"), 2, 1, 2) == [(0, 1, 2, 3)]
    assert starts(_regions("abbb"), 2, 1, 2) == []


def _found(candidate: Candidate | Rejected) -> Candidate:
    assert isinstance(candidate, Candidate), candidate
    return candidate


def test_baselines_of_two_regions_whose_ranks_alternate() -> None:
    problem = Problem(layers=LAYERS * 2, links=_regions("abab"), global_batch=8)
    options = Options()
    plan = _found(data_parallel(problem, options)).plan
    assert (plan.pp, plan.dp, plan.tp, plan.placement) == (1, 4, 1, (0, 1, 2, 3))
    plan = _found(megatron(problem, options)).plan
    assert (plan.pp, plan.dp, plan.placement, plan.cuts) == (2, 2, (0, 2, 1, 3), (0, 3))
    strong = _found(dt_fm(problem, options))
    assert {frozenset(group) for group in strong.plan.data_groups} == {frozenset({0, 2}), frozenset({1, 3})}
    # ranks in their order put the replicas of a stage into two regions
    first = amp_published(problem, options).candidates[0]
    assert first.plan.placement == (0, 1, 2, 3)
    best = search(problem, options).candidates[0]
    assert best.cost.total_s <= strong.cost.total_s < corrected(first.plan, problem).total_s


def test_megatron_widens_tensor_groups_to_a_region() -> None:
    layers = tuple(LayerProfile("", {1: 0.1, 2: 0.05, 4: 0.03}, 1000, 1000, block=0 < i < 5) for i in range(6))
    problem = Problem(layers=layers, links=_regions("aaaabbbb"), global_batch=8)
    plan = _found(megatron(problem, Options())).plan
    assert (plan.pp, plan.dp, plan.tp, plan.cuts) == (2, 1, 4, (0, 3))
    small = Problem(layers=layers, links=_regions("aaaabbbb"), global_batch=8, memory_bytes=(10,) * 8)
    rejected = megatron(small, Options())
    assert isinstance(rejected, Rejected) and "rank 0 has 10 B" in rejected.reasons[0]
    alone = megatron(Problem(layers=layers[:1], links=_regions("aabb"), global_batch=8), Options())
    assert alone == Rejected("tp=2 pp=2, a position for each region", ("no such plan divides ranks, layers and batch",))


def test_dt_fm_by_hand() -> None:
    # a line of regions a-b-c: the best order of groups is along it
    far = {frozenset("ab"): 1.0, frozenset("bc"): 2.0, frozenset("ac"): 9.0}
    links = LinkMatrix.of_regions("acb", lambda a, b: 0.0 if a == b else far[frozenset((a, b))], lambda a, b: 8e6)
    assert dt_fm_cost_s(((0,), (1,), (2,)), links, 5.0, 1e6) == 1 + 2 + 2 * 1
    # two groups of two: each rank sends half to its peer and gets half; the matching avoids the slow pair
    slow = tuple(tuple(1e6 if {i, j} == {0, 2} else 8e6 for j in range(4)) for i in range(4))
    pairs = LinkMatrix(tuple("aabb"), ((0.5,) * 4,) * 4, slow)
    assert dt_fm_cost_s(((0, 1), (2, 3)), pairs, 2e6, 1e6) == 2 * (0.5 + 1) + 0.5 + 1
    problem = Problem(layers=LAYERS, links=pairs, global_batch=4)
    plan = _found(dt_fm(problem, Options())).plan
    assert {0, 2} not in [{plan.rank(p, d, 0) for p in range(plan.pp)} for d in range(plan.dp)]


@pytest.mark.parametrize("seed", range(6))
def test_dt_fm_orders_and_matches_groups_as_trying_all_would(seed: int) -> None:
    links, groups = _unlike(9, "a" * 9, seed), ((0, 1, 2), (3, 4, 5), (6, 7, 8))

    def matching_s(a: tuple[int, ...], b: tuple[int, ...]) -> float:
        return min(
            max(links.message_s(i, j, 9000) for i, j in zip(a, order, strict=True))
            for order in itertools.permutations(b)
        )

    least_s = min(sum(itertools.starmap(matching_s, itertools.pairwise(o))) for o in itertools.permutations(groups))
    gradients_s = max(sum(2 * links.message_s(i, j, 3e5) for j in g if j != i) for g in groups for i in g)
    assert dt_fm_cost_s(groups, links, 9e5, 9000) == pytest.approx(gradients_s + least_s)


def test_dt_fm_of_many_ranks_begins_with_regions() -> None:
    links = _regions("abc" * 4, alpha_s=0.05)
    problem = Problem(layers=LAYERS, links=links, global_batch=12)
    plan = _found(dt_fm(problem, Options(micro_batches=(1,), tries=30))).plan
    assert (plan.pp, plan.dp) == (3, 4)
    assert all(len({links.regions[rank] for rank in group}) == 1 for group in plan.data_groups)


def test_dt_fm_improves_its_start_by_swaps() -> None:
    problem = Problem(layers=LAYERS[:2], links=_unlike(10, "a" * 10), global_batch=10)

    def cost_s(tries: int) -> float:
        plan = _found(dt_fm(problem, Options(micro_batches=(1,), tries=tries))).plan
        assert (plan.pp, plan.dp) == (2, 5)
        return dt_fm_cost_s((plan.position_ranks(0), plan.position_ranks(1)), problem.links, 250_000, 9000)

    assert cost_s(60) < cost_s(0)


def test_amp_as_published_orders_by_its_own_model_and_looks_at_no_memory() -> None:
    problem = Problem(layers=LAYERS, links=_unlike(4, "aabb"), global_batch=8, memory_bytes=(1,) * 4)
    ranking = amp_published(problem, Options(schedules=(ONE_F_ONE_B, INTERLEAVED)))
    times = [candidate.cost.total_s for candidate in ranking.candidates]
    assert times == sorted(times) and len(times) == 4
    assert all(published(each.plan, problem) == each.cost for each in ranking.candidates)
    assert not search(problem).candidates
    released = amp_published(problem, Options(), as_released=True).candidates
    assert all(published(each.plan, problem, last_link_only=True) == each.cost for each in released)


def test_of_plans_that_amp_cannot_tell_apart_the_corrected_model_s_faster_one_is_first() -> None:
    problem = Problem(layers=LAYERS * 2, links=_regions("abcd", alpha_s=0.05), global_batch=16)
    both = amp_published(problem, Options(schedules=SEARCHED, micro_batches=(1,))).candidates
    first, second = (one for one in both if one.plan.pp == 4)
    assert first.cost.total_s == second.cost.total_s
    assert (first.plan.schedule, second.plan.schedule) == (GPIPE, ONE_F_ONE_B)
    assert corrected(first.plan, problem).total_s < corrected(second.plan, problem).total_s
    assert _found(megatron(problem, Options(schedules=SEARCHED))).plan.schedule == GPIPE


def test_options_say_all_that_is_wrong() -> None:
    with pytest.raises(ValueError, match="schedules=zb") as found:
        Options(schedules=("zb",), tries=-1, chunks=1)
    assert "tries=-1" in str(found.value) and "chunks=1" in str(found.value)
