"""Both cost models of a plan by hand, the figures known of two regions, and memory."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from testbed.core.parallelism.costs import (
    boundary_times_s,
    corrected,
    corrected_total_s,
    durations_of,
    least_total_s,
    published,
    ring_times_s,
)
from testbed.core.parallelism.memory import in_flight, memory_bytes, memory_faults
from testbed.core.parallelism.plan import GPIPE, INTERLEAVED, ONE_F_ONE_B, Plan
from testbed.core.parallelism.problem import HIERARCHICAL, LayerProfile, LinkMatrix, Problem

MB = 1_000_000


def _links(regions: str, inside_bit_s: float, across_bit_s: float, *, alpha_s: float = 0.0) -> LinkMatrix:
    """Without latency inside a region."""
    return LinkMatrix.of_regions(
        regions, lambda a, b: 0.0 if a == b else alpha_s, lambda a, b: inside_bit_s if a == b else across_bit_s
    )


def _layers(*forward_s: float, parameters: int = MB, activation: int = MB) -> tuple[LayerProfile, ...]:
    return tuple(LayerProfile(f"{i}", {1: t, 2: t / 2}, parameters, activation) for i, t in enumerate(forward_s))


def _problem(regions: str, layers: tuple[LayerProfile, ...], **others: Any) -> Problem:
    values: dict[str, Any] = {"links": _links(regions, 8e6, 8e6), "global_batch": 4}
    return Problem(layers=layers, **{**values, **others})


def _plan(pp: int, dp: int, cuts: tuple[int, ...], **others: Any) -> Plan:
    values: dict[str, Any] = {"tp": 1, "micro_batch": 1, "placement": tuple(range(pp * dp * others.get("tp", 1)))}
    return Plan(pp=pp, dp=dp, cuts=cuts, **{**values, **others})


def test_a_pipeline_of_two_by_hand() -> None:
    # T = 3 and 6, four micro-batches, a message of 1 MB takes 0.5 + 1
    problem = _problem("ab", _layers(1, 2), links=_links("ab", 8e6, 8e6, alpha_s=0.5))
    cost, plan = corrected(_plan(2, 1, (0, 1)), problem), _plan(2, 1, (0, 1))
    assert (cost.pipe_s, cost.bubble_s, cost.link_s, cost.dp_s) == (24, 3, 3, 0)
    assert cost.total_s == 3 * 6 + 9 + 2 * 1.5
    # forward alone, once, without latency
    assert published(plan, problem).total_s == 3 * 6 + 9 + 1


def test_a_stage_s_forward_is_the_part_that_was_measured() -> None:
    measured = (LayerProfile("a", {1: 1.0}, MB, MB, forward_share=0.5), LayerProfile("b", {1: 2.0}, MB, MB))
    found = durations_of(_plan(2, 1, (0, 1)), _problem("ab", measured))
    assert (found.forward_s, found.backward_s) == (pytest.approx([1.5, 2.0]), pytest.approx([1.5, 4.0]))
    with pytest.raises(ValueError, match="a: forward_share"):
        LayerProfile("a", {1: 1.0}, MB, MB, forward_share=1.0)


def test_gpipe_pays_a_slow_link_once_a_message_and_1f1b_waits_for_what_it_may_have_in_flight() -> None:
    # T = 3 and 6; a message occupies the link for 4 s and is 0.5 s on its way besides
    problem = _problem("ab", _layers(1, 2), links=_links("ab", 8e6, 2e6, alpha_s=0.5))
    gpipe, usual = (_plan(2, 1, (0, 1), schedule=schedule) for schedule in (GPIPE, ONE_F_ONE_B))
    # forwards arrive at 5.5, 9.5, 13.5, 17.5; backwards are made at 23.5, 27.5, 31.5, 35.5, arrive 4.5 s later
    assert corrected(gpipe, problem).total_s == 35.5 + 4.5 + 2
    # two of four are in flight: the third begins when the first is back, at 5.5 + 6 + 4.5 + 2, the fourth at 24; that
    # one is back on the second stage at 29.5, made there at 35.5, and arrives at 40
    assert corrected(usual, problem).total_s == 40 + 2
    # it makes no difference to AMP's own
    assert published(gpipe, problem).total_s == published(usual, problem).total_s == 3 * 6 + 9 + 4


def test_pipelines_over_one_link_share_it_and_ones_inside_a_region_do_not() -> None:
    layers = _layers(1, 1, 1, 1)
    across = _problem("aabb", layers)
    assert boundary_times_s(_plan(2, 2, (0, 2)), across) == [2]
    assert boundary_times_s(_plan(2, 2, (0, 2)), _problem("aaaa", layers)) == [1]
    # there and back again: two boundaries over one link
    assert boundary_times_s(_plan(4, 1, (0, 1, 2, 3)), _problem("abba", layers)) == [2, 1, 2]
    # shards send each what is whole
    assert boundary_times_s(_plan(2, 1, (0, 2), tp=2), across) == [2]


def test_published_takes_the_mean_of_replicas_where_the_slowest_counts() -> None:
    slow = tuple(tuple(2e6 if {i, j} == {1, 3} else 8e6 for j in range(4)) for i in range(4))
    links = LinkMatrix(("a",) * 4, ((0.0,) * 4,) * 4, slow)
    problem, plan = _problem("aaaa", _layers(1, 1, parameters=0), links=links), _plan(2, 2, (0, 1))
    assert published(plan, problem).link_s == (1 + 4) / 2
    # forwards on the second stage begin at 1 + 4 and 1 + 2 x 4, backwards leave at 8 and 12, and arrive 4 s later
    assert corrected(plan, problem).total_s == 12 + 4 + 2


def test_all_reduces_by_hand() -> None:
    links = _links("aabb", 80e6, 8e6, alpha_s=0.25)
    # six rounds with a latency each, 2 x 3/4 x 4 MB
    assert ring_times_s([((0, 1, 2, 3), 4 * MB)], links) == [6 * 0.25 + 6]
    assert ring_times_s([((0, 1), 4 * MB)], links) == [0.4]
    # two rings of two share the link; the one of less waits for as much of the other's
    assert ring_times_s([((0, 2), 2 * MB), ((1, 3), MB)], links) == [2 * 0.25 + 3, 2 * 0.25 + 2]
    assert ring_times_s([((0,), MB)], links) == [0]


def test_an_all_reduce_by_region_crosses_once_each_way() -> None:
    problem = _problem("aabb", _layers(1, parameters=100_000), links=_links("aabb", 80e6, 8e6, alpha_s=0.25))
    flat, plan = corrected(_plan(1, 4, (0,)), problem), _plan(1, 4, (0,))
    by_region = corrected(plan, dataclasses.replace(problem, all_reduce=HIERARCHICAL))
    assert flat.dp_s == pytest.approx(6 * 0.25 + 0.15)
    # a member's 0.01 s to its leader and back, and a ring of two leaders
    assert by_region.dp_s == pytest.approx(2 * 0.01 + 2 * 0.25 + 0.1)
    inside = dataclasses.replace(problem, links=_links("aaaa", 80e6, 8e6), all_reduce=HIERARCHICAL)
    assert corrected(plan, inside).dp_s == pytest.approx(0.015)


def test_the_released_code_knows_the_last_link_of_a_ring_alone() -> None:
    # the ring 0 1 2 3 crosses at 1-2 and 3-0; with ranks as 3 0 1 2 its last link is inside b
    problem = _problem("aabb", _layers(1), links=_links("aabb", 80e6, 8e6))
    plan = _plan(1, 4, (0,), placement=(3, 0, 1, 2))
    assert published(plan, problem).dp_s == pytest.approx(1.5)
    assert published(plan, problem, last_link_only=True).dp_s == pytest.approx(0.15)


def test_interleaving_divides_the_bubble() -> None:
    problem = _problem("aa", _layers(1, 1, 1, 1, activation=0))
    plain = corrected(_plan(2, 1, (0, 2)), problem)
    chunks = corrected(_plan(2, 1, (0, 1, 2, 3), schedule=INTERLEAVED), problem)
    assert (plain.pipe_s, plain.bubble_s) == (24, 6)
    assert (chunks.pipe_s, chunks.bubble_s) == (24, 3)
    with pytest.raises(ValueError, match="AMP's published model has none"):
        published(_plan(2, 1, (0, 1, 2, 3), schedule=INTERLEAVED), problem)


def test_a_plan_for_something_else_is_refused() -> None:
    problem = _problem("aa", _layers(1, 1))
    with pytest.raises(ValueError, match="there are 2"):
        corrected(_plan(1, 1, (0,)), problem)
    with pytest.raises(ValueError, match="tp=3: not profiled"):
        corrected(_plan(1, 1, (0,), tp=3), _problem("aaa", _layers(1, 1)))


def _two_regions(rate_bit_s: float) -> Problem:
    """Eight layers of h=256, s=128 at 5 GFLOP/s, 32 samples, 1 Gbit/s inside, RTT 20 ms."""
    width, tokens = 256, 128
    layer = LayerProfile("block", {1: 24 * width**2 * tokens / 5e9}, 12 * width**2 * 4, width * tokens * 4)
    return Problem(layers=(layer,) * 8, links=_links("aabb", 1e9, rate_bit_s, alpha_s=0.01), global_batch=32)


@pytest.mark.parametrize(
    ("rate_bit_s", "pure_dp", "wrong"),
    [(1e9, 1.00, 1.00), (200e6, 1.12, 1.05), (100e6, 1.30, 1.11), (50e6, 1.65, 1.23), (20e6, 2.71, 1.59)],
)
def test_figures_of_two_regions(rate_bit_s: float, pure_dp: float, wrong: float) -> None:
    """Figures are of an earlier model, which paid both messages of each micro-batch, and gave each ring the link for
    itself; here the two rings of a wrong placement share it, so that what it loses by them is twice as much."""
    problem = _two_regions(rate_bit_s)
    dp4, right = corrected(_plan(1, 4, (0,)), problem), corrected(_plan(2, 2, (0, 4), schedule=GPIPE), problem)
    crossed = corrected(_plan(2, 2, (0, 4), placement=(0, 2, 1, 3), schedule=GPIPE), problem)
    alone_s = ring_times_s([((0, 2), 4 * problem.layers[0].parameter_bytes)], problem.links)[0]
    assert dp4.total_s / min(dp4.total_s, right.total_s) == pytest.approx(pure_dp, rel=0.02)
    assert (crossed.total_s - crossed.dp_s + alone_s) / right.total_s == pytest.approx(wrong, rel=0.03)
    assert crossed.dp_s == pytest.approx(2 * alone_s, abs=0.03)


@st.composite
def _drawn(draw: st.DrawFn, schedules: tuple[str, ...]) -> tuple[Plan, Problem]:
    """Small whole numbers of everything, on unlike links."""
    pp, dp = draw(st.sampled_from([(1, 4), (2, 2), (4, 1), (1, 1), (3, 1), (2, 1)]))
    ranks, numbers = pp * dp, st.integers(1, 9)
    rows = st.tuples(*[st.tuples(*[numbers.map(float)] * ranks)] * ranks)
    links = LinkMatrix(draw(st.tuples(*[st.sampled_from("ab")] * ranks)), draw(rows), draw(rows))
    layers = tuple(LayerProfile("", {1: draw(numbers)}, draw(numbers), draw(numbers)) for _ in range(pp + 1))
    count = draw(st.integers(4, 9))
    placement = tuple(draw(st.permutations(range(ranks))))
    plan = _plan(pp, dp, tuple(range(pp)), placement=placement, schedule=draw(st.sampled_from(schedules)))
    return plan, Problem(layers=layers, links=links, global_batch=count * dp)


@settings(deadline=None, max_examples=60)
@given(_drawn((GPIPE,)))
def test_of_gpipe_corrected_is_never_below_published(drawn: tuple[Plan, Problem]) -> None:
    ours, theirs = corrected(*drawn), published(*drawn)
    assert ours.pipe_s == theirs.pipe_s and ours.bubble_s == pytest.approx(theirs.bubble_s)
    assert ours.link_s >= theirs.link_s * (1 - 1e-9)


@settings(deadline=None, max_examples=60)
@given(_drawn((GPIPE, ONE_F_ONE_B)))
def test_the_least_is_never_above_what_a_step_takes(drawn: tuple[Plan, Problem]) -> None:
    plan, problem = drawn
    total_s = corrected(plan, problem).total_s
    assert least_total_s(plan, problem) <= total_s * (1 + 1e-9)
    assert corrected_total_s(plan, problem) == pytest.approx(total_s)


def test_memory_by_hand() -> None:
    layers = (LayerProfile("a", {1: 1.0}, 100, 7, 30), LayerProfile("b", {1: 1.0}, 50, 20))
    problem = _problem("aa", layers, global_batch=6, optimizer_states=1)
    plan = _plan(2, 1, (0, 1), micro_batch=2)
    # position 0 has two micro-batches in flight, the last one
    assert memory_bytes(plan, problem) == (3 * 100 + 2 * 2 * 30, 3 * 50 + 2 * 20)
    gpipe = dataclasses.replace(plan, schedule=GPIPE)
    assert memory_bytes(gpipe, problem) == (3 * 100 + 3 * 2 * 30, 3 * 50 + 3 * 2 * 20)
    assert in_flight(plan, 0, 2) == 1
    tight = dataclasses.replace(problem, memory_bytes=(419, 190))
    assert memory_faults(plan, tight) == [
        "position 0: 300 B of parameters, gradients and optimizer states and 120 B of activations of 2 in flight; "
        "rank 0 has 419 B"
    ]
    assert memory_faults(plan, dataclasses.replace(problem, memory_bytes=(420, 190))) == []
    assert corrected(plan, problem).memory_bytes == (420, 190)


def test_shards_hold_parts_and_interleaving_keeps_more() -> None:
    layers = tuple(LayerProfile(f"{i}", {1: 1.0, 2: 1.0}, 101, 10) for i in range(4))
    shards = _plan(1, 1, (0,), tp=2)
    assert memory_bytes(shards, _problem("aa", layers, optimizer_states=0)) == (404 + 20,)
    plan = _plan(2, 1, (0, 1, 2, 3), schedule=INTERLEAVED)
    assert [in_flight(plan, position, 8) for position in (0, 1)] == [5, 3]
    assert in_flight(plan, 0, 1) == 2
    assert memory_bytes(plan, _problem("aa", layers, global_batch=8)) == (4 * 202 + 50, 4 * 202 + 30)
    assert memory_bytes(plan, _problem("aa", layers, global_batch=1)) == (4 * 202 + 20, 4 * 202 + 20)


def test_links_and_problems_say_all_that_is_wrong() -> None:
    with pytest.raises(ValueError, match=r"alpha_s: rows of \[1, 2\]; must be 2 x 2") as found:
        LinkMatrix(("a", "b"), ((0.0,), (0.0, 0.0)), ((1.0, 1.0),))
    assert "rate_bit_s: rows of [2]" in str(found.value)
    with pytest.raises(ValueError, match=r"alpha_s\[0\]\[1\]=-1.0") as found:
        LinkMatrix(("a", "b"), ((0.0, -1.0), (0.0, 0.0)), ((0.0, 1.0), (0.0, 0.0)))
    assert "rate_bit_s[1][0]=0.0: must be above 0" in str(found.value)
    with pytest.raises(ValueError, match="memory_bytes: 1 for 2 ranks") as found:
        _problem("aa", _layers(1), memory_bytes=(5,), all_reduce="star", global_batch=0)
    assert "all_reduce=star" in str(found.value) and "global_batch=0" in str(found.value)
    with pytest.raises(ValueError, match="no tp degree"):
        _problem("aa", (LayerProfile("", {1: 1.0}, 0, 0), LayerProfile("", {2: 1.0}, 0, 0)))
    with pytest.raises(ValueError, match="forward_s is empty"):
        LayerProfile("head", {}, 0, 0)
