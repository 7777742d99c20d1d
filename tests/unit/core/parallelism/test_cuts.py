"""Cuts of a model into stages, against all cuts there are."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from testbed.core.parallelism.costs import Channel
from testbed.core.parallelism.cuts import (
    Cuts,
    best_cuts,
    even_layers,
    even_sizes,
    messages_of,
    published_cuts,
)

Case = tuple[list[float], list[list[float]], int]


@st.composite
def cases(draw: st.DrawFn, fewest: int = 1) -> Case:
    """Whole numbers, so that no rounding hides what is best."""
    times = draw(st.lists(st.integers(0, 9).map(float), min_size=2, max_size=7))
    stages = draw(st.integers(1, min(4, len(times))))
    row = st.lists(st.integers(0, 9).map(float), min_size=len(times), max_size=len(times))
    messages = draw(st.lists(row, min_size=stages - 1, max_size=stages - 1))
    return times, messages, draw(st.integers(fewest, 6))


def _all_cuts(layers: int, stages: int) -> list[Cuts]:
    return [(0, *cuts) for cuts in itertools.combinations(range(1, layers), stages - 1)]


def _pipeline_s(case: Case, cuts: Cuts) -> float:
    """The closed form of a pipeline's time: what `best_cuts` makes least."""
    times, messages, count = case
    stages = [sum(times[a:b]) for a, b in itertools.pairwise((*cuts, len(times)))]
    sent = [messages[stage][cut] for stage, cut in enumerate(cuts[1:])]
    longest = max(*stages, *(2 * each for each in sent), 0.0)
    return (count - 1) * longest + sum(stages) + 2 * sum(sent)


def _published_s(case: Case, cuts: Cuts) -> float:
    times, messages, count = case
    stages = [sum(times[a:b]) for a, b in itertools.pairwise((*cuts, len(times)))]
    return (count - 1) * max(stages) + sum(stages) + sum(messages[j][cut] for j, cut in enumerate(cuts[1:]))


@settings(deadline=None, max_examples=150)
@given(cases())
def test_no_cuts_are_better(case: Case) -> None:
    times, messages, _ = case
    found = best_cuts(*case)
    assert found is not None
    least_s = min(_pipeline_s(case, cuts) for cuts in _all_cuts(len(times), len(messages) + 1))
    assert _pipeline_s(case, found) == least_s


@settings(deadline=None, max_examples=100)
@given(cases(), st.integers(1, 25))
def test_no_cuts_that_fit_are_better(case: Case, limit: int) -> None:
    """A stage has memory for so much time; later ones for more."""
    times, messages, _ = case

    def fits(stage: int, first: int, end: int) -> bool:
        return sum(times[first:end]) <= limit + stage

    def all_fit(cuts: Cuts) -> bool:
        ends = itertools.pairwise((*cuts, len(times)))
        return all(fits(stage, first, end) for stage, (first, end) in enumerate(ends))

    fitting = [cuts for cuts in _all_cuts(len(times), len(messages) + 1) if all_fit(cuts)]
    found = best_cuts(*case, fits)
    if not fitting:
        assert found is None
    else:
        assert found in fitting
        assert _pipeline_s(case, found) == min(_pipeline_s(case, cuts) for cuts in fitting)


@settings(deadline=None, max_examples=100)
@given(cases(fewest=2))
def test_the_published_recursion_is_exact_for_the_published_model(case: Case) -> None:
    times, messages, _ = case
    found = published_cuts(*case)
    least_s = min(_published_s(case, cuts) for cuts in _all_cuts(len(times), len(messages) + 1))
    assert _published_s(case, found) == least_s


def test_a_slow_link_moves_a_cut_to_where_little_is_sent() -> None:
    times = [1.0, 1.0, 1.0, 1.0]
    narrow_late = [[9.0, 5.0, 5.0, 0.5]]
    assert best_cuts(times, narrow_late, 4) == (0, 3)
    # forward alone is weighed, and never what it holds up: 3 x 2 + 1.9 against 3 x 3 + 0.5
    assert published_cuts(times, [[9.0, 5.0, 1.9, 0.5]], 4) == (0, 2)
    # 3 x 3.8 + 2 x 1.9 against 3 x 3 + 2 x 0.5
    assert best_cuts(times, [[9.0, 5.0, 1.9, 0.5]], 4) == (0, 3)


def test_the_released_recursion_forgets_all_messages_but_the_last() -> None:
    # 2 + 0.5 with cuts at 2 and 3, or 2 + 9 at 1 and 2, of which the last boundary's 0 is all that is left
    times, messages = [1.0] * 4, [[0.0, 9.0, 0.0, 0.0], [0.0, 0.0, 0.0, 0.5]]
    assert published_cuts(times, messages, 2) == (0, 2, 3)
    assert published_cuts(times, messages, 2, forgets_messages=True) == (0, 1, 2)


def test_one_micro_batch_is_divided_evenly_as_published() -> None:
    assert published_cuts([9.0, 1.0, 1.0, 1.0], [[0.0] * 4], 1) == (0, 2)


def test_even_cuts() -> None:
    assert even_layers([True] * 8, 3) == (0, 3, 6)
    # embeddings go with the first blocks, the head with the last
    assert even_layers([False, True, True, True, True, False], 2) == (0, 3)
    assert even_layers([False, True, False], 2) == (0, 2)
    assert even_sizes([5, 1, 1, 1, 1, 1], 2) == (0, 1)
    assert even_sizes([1, 1, 1, 1, 1, 5], 3) == (0, 2, 5)


@pytest.mark.parametrize("cut", [even_layers, even_sizes])
def test_more_stages_than_layers_are_refused(cut: type) -> None:
    with pytest.raises(ValueError, match="stages=3: there are 2 layers"):
        cut([1, 1], 3)


def test_faults_of_best_cuts() -> None:
    with pytest.raises(ValueError, match="stages=2: there are 1 layers") as found:
        best_cuts([1.0], [[0.0]], 0)
    assert "micro_batches=0" in str(found.value)


def test_messages_are_what_the_layer_before_passes_on() -> None:
    boundary = frozenset({Channel(1.0, 8.0), Channel(0.0, 4.0)})
    assert messages_of([boundary], [1.0, 0.5, 7.0]) == [[1.0, 2.0, 1.5]]
