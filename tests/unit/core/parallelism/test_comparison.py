"""Plans side by side: all ways of choosing on one problem, and plans as JSON."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from testbed.core.parallelism.comparison import (
    WAYS,
    Predicted,
    choose,
    compare,
    plan_from_json,
    plan_to_json,
    predicted,
)
from testbed.core.parallelism.costs import corrected, published
from testbed.core.parallelism.plan import GPIPE, INTERLEAVED, ONE_F_ONE_B, Plan
from testbed.core.parallelism.problem import LayerProfile, LinkMatrix, Problem
from testbed.core.parallelism.search import Candidate, Options, Rejected, search


def _problem(**given: Any) -> Problem:
    links = LinkMatrix.of_regions("aabb", lambda a, b: 1e-4 if a == b else 0.01, lambda a, b: 1e9 if a == b else 2e7)
    layers = tuple(LayerProfile(str(i), {1: 0.01}, 1_000_000, 30_000) for i in range(8))
    return Problem(**{"layers": layers, "links": links, "global_batch": 16, **given})


def test_the_search_is_never_behind_a_baseline_by_its_own_model() -> None:
    found = compare(_problem(), Options(schedules=(ONE_F_ONE_B, GPIPE)))
    times = [one.cost.total_s for one in found.ranked]
    assert times == sorted(times)
    assert set(found.choices) == set(WAYS)
    for name in ("megatron", "dt_fm", "data_parallel", "amp"):
        one = found.choices[name]
        assert isinstance(one, Predicted)
        assert one.cost.total_s >= times[0]


def test_places_are_those_of_the_ranking() -> None:
    found = compare(_problem(), Options())
    for place in (1, 3):
        one = choose("auto", _problem(), Options(), place)
        assert isinstance(one, Candidate)
        assert one.plan == found.ranked[place - 1].plan
    beyond = choose("amp", _problem(), Options(), 1000)
    assert isinstance(beyond, Rejected)
    assert "place 1000 of the" in beyond.what


def test_a_plan_has_what_both_models_say_of_it() -> None:
    problem, plan = _problem(), Plan(pp=2, dp=2, tp=1, micro_batch=2, cuts=(0, 4), placement=(0, 1, 2, 3))
    one = predicted(plan, problem)
    assert one.cost == corrected(plan, problem)
    assert one.published_s == published(plan, problem).total_s
    interleaved = Plan(pp=2, dp=2, tp=1, micro_batch=2, cuts=(0, 2, 4, 6), placement=(0, 1, 2, 3), schedule=INTERLEAVED)
    assert predicted(interleaved, problem).published_s is None


def test_amp_takes_what_fits_no_memory_and_says_so() -> None:
    near = LinkMatrix.of_regions("aaaa", lambda a, b: 1e-4, lambda a, b: 1e10)
    whole = 8 * 4 * 1_000_000
    found = compare(_problem(links=near, memory_bytes=(whole // 2,) * 4), Options())
    amp = found.choices["amp"]
    assert isinstance(amp, Predicted)
    assert any("rank" in fault for fault in amp.memory_faults)
    assert isinstance(found.choices["data_parallel"], Rejected)
    assert not any(one.memory_faults for one in found.ranked)


def test_nothing_that_can_be_is_a_rejection_with_its_reasons() -> None:
    found = compare(_problem(global_batch=1, memory_bytes=(1,) * 4), Options())
    for choice in found.choices.values():
        assert isinstance(choice, Rejected)
        assert choice.reasons
    assert found.ranked == ()


def test_a_comparison_is_json() -> None:
    found = compare(_problem(memory_bytes=(40_000_000,) * 4), Options(schedules=(ONE_F_ONE_B, INTERLEAVED)))
    told = json.loads(json.dumps(found.to_json(), allow_nan=False))
    assert [plan_from_json(one) for one in told["plans"]] == [one.plan for one in found.ranked]
    assert sum(told["plans"][0]["parts_s"].values()) == pytest.approx(told["plans"][0]["predicted_s"])
    assert told["rejected"]
    assert set(told["choices"]) == set(WAYS)


def test_a_plan_passes_through_json() -> None:
    plan = Plan(pp=2, dp=1, tp=2, micro_batch=3, cuts=(0, 4), placement=(2, 3, 0, 1), schedule=GPIPE)
    assert plan_from_json(json.loads(json.dumps(plan_to_json(plan)))) == plan
    with pytest.raises(ValueError, match="not a plan: KeyError: 'dp'"):
        plan_from_json({"pp": 1})
    with pytest.raises(ValueError, match="must begin at 0"):
        plan_from_json({**plan_to_json(plan), "cuts": [1, 2]})


@given(
    st.lists(st.tuples(st.floats(1e-3, 0.1), st.integers(1, 10**7), st.booleans()), min_size=4, max_size=6),
    st.sampled_from([1e6, 2e7, 1e9]),
)
@settings(max_examples=30, deadline=None)
def test_uneven_models_too_are_searched_no_worse_than_by_any_baseline(
    drawn: list[tuple[float, int, bool]], across_bit_s: float
) -> None:
    links = LinkMatrix.of_regions(
        "aabb", lambda a, b: 1e-4 if a == b else 0.01, lambda a, b: 1e9 if a == b else across_bit_s
    )
    layers = tuple(
        LayerProfile(str(index), {1: forward_s}, parameter_bytes, 30_000, block=block)
        for index, (forward_s, parameter_bytes, block) in enumerate(drawn)
    )
    found = compare(_problem(layers=layers, links=links, global_batch=8), Options())
    best_s = found.ranked[0].cost.total_s
    for name in ("megatron", "dt_fm", "data_parallel"):
        one = found.choices[name]
        assert isinstance(one, Rejected) or one.cost.total_s >= best_s * (1 - 1e-9)


def test_a_stage_with_most_of_the_parameters_is_divided_though_its_pipeline_is_slower() -> None:
    # two layers of equal time, then one of little time and many parameters, that both replicas would sum
    layers = tuple(
        LayerProfile(name, {1: time_s}, size, 1000)
        for name, time_s, size in (("a", 0.03, 10**6), ("b", 0.02, 10**7), ("c", 0.01, 10**7))
    )
    slow = LinkMatrix.of_regions("aaaa", lambda a, b: 0.0, lambda a, b: 1e8)
    ranking = search(_problem(layers=layers, links=slow, global_batch=4), Options(micro_batches=(1,)))
    (best,) = (one for one in ranking.candidates if one.plan.pp == 2)
    # the pipeline alone is fastest cut at 1, 30 against 30 ms; then 20 MB are summed in place of 11
    assert best.plan.cuts == (0, 2)
