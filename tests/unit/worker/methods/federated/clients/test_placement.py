"""Clients in sequence on workers of unequal speeds: hand-computed placements, bounds, and the fit of their times."""

from __future__ import annotations

import itertools
import json
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from testbed.worker.methods.federated.clients.placement import (
    ClientTime,
    ClientTimes,
    equal_split,
    longest_first,
)


def _speeds(*speeds: float) -> list[ClientTime]:
    return [ClientTime(0.0, 1 / speed) for speed in speeds]


def _loads_s(samples: list[int], times: list[ClientTime], owners: list[int]) -> list[float]:
    """Seconds that each worker takes for its clients, one after another."""
    loads = [0.0] * len(times)
    for client, worker in enumerate(owners):
        loads[worker] += times[worker].of(samples[client])
    return loads


def _makespan_s(samples: list[int], times: list[ClientTime], owners: list[int]) -> float:
    return max(_loads_s(samples, times, owners))


def _factor(workers: int) -> float:
    """How many times the best makespan `longest_first` takes at most, where beginning is free: as published."""
    return min(2 * workers / (workers + 1), 1 + 3**-0.5)


def _best_s(samples: list[int], times: list[ClientTime]) -> float:
    """Of all placements."""
    places = itertools.product(range(len(times)), repeat=len(samples))
    return min(_makespan_s(samples, times, list(owners)) for owners in places)


def test_the_longest_goes_first_to_where_it_ends_soonest() -> None:
    times = _speeds(1, 0.5)
    # 8 ends at 8 or 16; 6 at 14 or 12; 5 at 13 or 22; 2 at 15 or 16
    assert longest_first([5, 8, 2, 6], times) == [0, 0, 0, 1]


def test_of_equal_clients_the_first_goes_to_the_lowest_of_equal_workers() -> None:
    assert longest_first([3, 3, 3, 3], _speeds(1, 1, 1)) == [0, 1, 2, 0]


def test_what_a_client_costs_to_begin_counts_on_each_worker() -> None:
    times = [ClientTime(10.0, 0.1), ClientTime(0.0, 1.0)]
    # the long one is sooner done where beginning is dear, the short ones where it is free
    assert longest_first([100, 4, 5], times) == [0, 1, 1]


def test_an_equal_split_goes_in_order() -> None:
    assert equal_split(7, 3) == [0, 0, 0, 1, 1, 2, 2]


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.integers(1, 50), min_size=1, max_size=6),
    st.lists(st.sampled_from([0.1, 0.25, 0.5, 0.9, 1.0, 3.0]), min_size=1, max_size=3),
)
def test_on_uniform_workers_never_beyond_the_factor_of_the_best(samples: list[int], speeds: list[float]) -> None:
    times = _speeds(*speeds)
    best_s, taken_s = _best_s(samples, times), _makespan_s(samples, times, longest_first(samples, times))
    assert taken_s <= _factor(len(speeds)) * best_s * (1 + 1e-9)


@pytest.mark.parametrize("seed", range(5))
def test_a_thousand_lognormal_clients_take_less_than_half_of_an_equal_split(seed: int) -> None:
    draw, times = random.Random(seed), _speeds(1, 1, 0.5, 0.25)
    samples = [max(1, round(draw.lognormvariate(5, 1))) for _ in range(1000)]
    placed_s = _makespan_s(samples, times, longest_first(samples, times))
    assert _makespan_s(samples, times, equal_split(1000, 4)) >= 2 * placed_s
    assert placed_s <= 1.01 * sum(samples) / 2.75  # the least there could be: no worker ever waits


def test_a_fit_finds_what_was_measured() -> None:
    times = ClientTimes(2)
    for samples in (10, 20, 70):
        times.observe(0, samples, 3 + 0.5 * samples)
        times.observe(1, samples, 0.25 * samples)
    fitted = times.fitted()
    assert fitted is not None
    assert (fitted[0].start_s, fitted[0].sample_s) == pytest.approx((3, 0.5))
    assert (fitted[1].start_s, fitted[1].sample_s) == pytest.approx((0, 0.25), abs=1e-12)


def test_a_fit_is_of_least_squares() -> None:
    fitted = ClientTime.fitted([(1, 2.0), (2, 2.0), (3, 5.0)])  # mean (2, 3), slope 3 / 2
    assert (fitted.start_s, fitted.sample_s) == pytest.approx((0, 1.5), abs=1e-12)
    fitted = ClientTime.fitted([(1, 3.0), (2, 3.0), (3, 6.0)])
    assert (fitted.start_s, fitted.sample_s) == pytest.approx((1, 1.5))


@pytest.mark.parametrize(
    ("observed", "line"),
    [
        ([(10, 4.0)], (0, 0.4)),
        ([(10, 4.0), (10, 6.0)], (0, 0.5)),
        ([(1, 5.0), (9, 3.0)], (4, 0)),  # more samples took less: they tell nothing
        ([(10, 1.0), (20, 4.0)], (0, (10 + 80) / 500)),  # a start of -2 s
    ],
)
def test_a_line_that_cannot_be_is_not_fitted(observed: list[tuple[int, float]], line: tuple[float, float]) -> None:
    fitted = ClientTime.fitted(observed)
    assert (fitted.start_s, fitted.sample_s) == pytest.approx(line)


def test_a_worker_that_has_measured_nothing_goes_by_the_others() -> None:
    times = ClientTimes(3)
    assert times.fitted() is None
    times.observe(0, 10, 10.0)
    times.observe(1, 10, 30.0)
    assert times.fitted() == [ClientTime(0, 1), ClientTime(0, 3), ClientTime(0, 2)]


def test_what_left_the_window_counts_no_more() -> None:
    times = ClientTimes(1, window=2)
    for elapsed_s in (100.0, 2.0, 4.0):
        times.observe(0, 1, elapsed_s)
    assert times.fitted() == [ClientTime(0, 3)]


def test_times_go_on_from_their_state() -> None:
    times, again = ClientTimes(2, window=2), ClientTimes(2, window=2)
    times.observe(0, 10, 10.0)
    times.observe(0, 30, 20.0)
    again.observe(1, 1, 1.0)
    again.load_state_dict(json.loads(json.dumps(times.state_dict())))
    for one in (times, again):
        one.observe(0, 20, 30.0)
    assert again.fitted() == times.fitted()
    assert again.state_dict() == times.state_dict()
    with pytest.raises(ValueError, match="a state of 2 workers, but there are 3"):
        ClientTimes(3).load_state_dict(times.state_dict())


def test_all_faults_are_told_at_once() -> None:
    with pytest.raises(ValueError, match=r"workers=0.*\nwindow=1"):
        ClientTimes(0, window=1)
    with pytest.raises(ValueError, match=r"worker=2.*\nsamples=0.*\nelapsed_s=nan"):
        ClientTimes(2).observe(2, 0, float("nan"))
    with pytest.raises(ValueError, match=r"start_s=-1.*\nsample_s=inf"):
        ClientTime(-1, float("inf"))
    with pytest.raises(ValueError, match="takes some time"):
        ClientTime(0, 0)
    with pytest.raises(ValueError, match=r"times: there is no worker.*\nsamples\[1\]=0"):
        longest_first([1, 0], [])
    with pytest.raises(ValueError, match="there is no client"):
        longest_first([], _speeds(1))
    with pytest.raises(ValueError, match=r"clients=0.*\nworkers=0"):
        equal_split(0, 0)
