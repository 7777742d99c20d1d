"""Who takes part in a round: by chance, by weight, and as Oort does."""

from __future__ import annotations

import json
import math
import random
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.worker.methods.federated.clients.oort import Oort, Report, statistical_utility
from testbed.worker.methods.federated.clients.sampling import Sampling, weighted_sample


@given(
    available=st.sets(st.integers(0, 50)),
    count=st.integers(1, 20),
    round_=st.integers(0, 1000),
    weighted=st.booleans(),
)
def test_a_rounds_clients_are_different_available_and_as_many_as_wanted(
    available: set[int], count: int, round_: int, weighted: bool
) -> None:
    weights = {client: 1.0 + client for client in available} if weighted else None
    sampling = Sampling(count=count, seed=3)
    chosen = sampling.choose(round_, available, 51, weights)
    assert len(set(chosen)) == len(chosen) == min(count, len(available))
    assert set(chosen) <= available and chosen == sorted(chosen)
    assert Sampling(count=count, seed=3).choose(round_, sorted(available, reverse=True), 51, weights) == chosen


def test_rounds_and_seeds_differ_and_a_fraction_is_of_all_that_are_known() -> None:
    chosen = [tuple(Sampling(count=5, seed=seed).choose(r, range(100), 100)) for seed in (0, 1) for r in range(5)]
    assert len(set(chosen)) == 10
    for fraction, known, wanted in ((0.29, 100, 29), (0.1, 4, 1), (1.0, 7, 7), (0.25, 10, 2)):
        assert Sampling(fraction=fraction).wanted(known) == wanted
    # a tenth of 100, though only 30 are there
    assert len(Sampling(fraction=0.1).choose(0, range(30), 100)) == 10


def test_the_first_that_is_drawn_is_so_by_weight() -> None:
    chance = random.Random(1)
    weights = {0: 1.0, 1: 2.0, 2: 5.0}
    first = Counter(weighted_sample([0, 1, 2], weights, 1, chance)[0] for _ in range(4000))
    for client, weight in weights.items():
        assert first[client] / 4000 == pytest.approx(weight / 8, abs=0.03)
    # of two, 0 is left out if it is third: 5/8 * 2/3 + 2/8 * 5/6 = 0.625
    pairs = Counter(tuple(sorted(weighted_sample([0, 1, 2], weights, 2, chance))) for _ in range(4000))
    assert pairs[1, 2] / 4000 == pytest.approx(0.625, abs=0.03)


def test_bad_sampling_is_refused_with_all_its_faults() -> None:
    with pytest.raises(ValueError, match=r"(?s)give one of both.*\nseed=-1"):
        Sampling(seed=-1)
    with pytest.raises(ValueError, match=r"(?s)give one of both\ncount=0: .*\nfraction=2: "):
        Sampling(count=0, fraction=2)
    with pytest.raises(
        ValueError, match=r"(?s)client 0: a weight of 0;.*\nclient 1: a weight of None.*\nclient 2: .*nan"
    ):
        Sampling(count=1).choose(0, [0, 1, 2, 3], 4, {0: 0, 2: math.nan, 3: 1})


def _report(utility: float, duration_s: float = 1.0) -> Report:
    return Report(utility=utility, duration_s=duration_s)


def test_statistical_utility_told_by_hand() -> None:
    assert statistical_utility([3.0, 4.0]) == pytest.approx(2 * math.sqrt(12.5))
    for losses in ([], [math.inf], [math.nan, 1.0]):
        with pytest.raises(ValueError, match="losses of samples"):
            statistical_utility(losses)


def test_utilities_told_by_hand() -> None:
    oort = Oort(count=2, preferred_s=2.0, clip=1.0)
    oort.finish_round({0: _report(10.0), 1: _report(20.0, 4.0), 2: _report(40.0)})
    oort.finish_round({2: _report(30.0, 2.0)})
    # round 3 comes. Scaled between 10 and 30: 0, 0.5, 1. Doubt: sqrt(0.1 ln 3 / L). Client 1 takes twice T: a quarter.
    doubt = math.sqrt(0.1 * math.log(3))
    expected = {0: doubt, 1: (0.5 + doubt) / 4, 2: 1 + doubt / math.sqrt(2)}
    assert oort.utilities([0, 1, 2, 3]) == pytest.approx(expected)
    assert oort.utilities([7]) == {}


def test_utilities_above_the_quantile_count_alike() -> None:
    oort = Oort(count=2, clip=0.5)
    oort.finish_round({0: _report(1.0), 1: _report(2.0), 2: _report(3.0), 3: _report(1e9)})
    utilities = oort.utilities(range(4))
    assert utilities[3] == utilities[2] > utilities[1] > utilities[0]


def test_new_clients_are_explored_by_speed_and_fewer_of_them_from_round_to_round() -> None:
    oort = Oort(count=10, exploration=0.5, exploration_decay=0.5, least_exploration=0.2)
    assert len(oort.choose(range(100))) == 10  # nobody is known: all are new
    oort.finish_round({client: _report(1.0) for client in range(50)})
    new = [sum(client >= 50 for client in oort.choose(range(100)))]
    for _ in range(3):
        oort.finish_round({})
        new.append(sum(client >= 50 for client in oort.choose(range(100))))
    assert new == [2, 2, 2, 2]  # a quarter of 10 is rounded to 2, then two tenths
    assert oort.exploration == 0.2
    speeds = {client: 1e9 if client in (60, 70) else 1.0 for client in range(50, 100)}
    assert {60, 70} <= set(oort.choose(range(100), speeds))
    with pytest.raises(ValueError, match="client 99: a weight of None"):
        oort.choose(range(100), dict.fromkeys(range(50, 99), 1.0))


def test_the_useful_and_fast_are_exploited() -> None:
    oort = Oort(count=4, exploration=0, least_exploration=0, preferred_s=1.0)
    reports = {client: _report(100.0 if client < 8 else 1.0, 10.0 if client < 4 else 1.0) for client in range(40)}
    oort.finish_round(reports)
    # useful and fast: 4 to 7. Useful ones that take ten times too long lose a hundredfold.
    assert oort.choose(range(40)) == [4, 5, 6, 7]
    assert oort.choose([0, 1, 9, 5]) == [0, 1, 5, 9]
    assert oort.choose([]) == []
    # nobody new is there: the known fill the round though all were to be explored
    eager = Oort(count=4, exploration=1, least_exploration=1)
    eager.finish_round(reports)
    assert len(eager.choose(range(40))) == 4


def test_who_has_taken_part_often_enough_is_left_out_until_too_few_are_left() -> None:
    oort = Oort(count=1, exploration=0, least_exploration=0, most_times=2)
    for _ in range(2):
        oort.finish_round({0: _report(9.0)})
    oort.finish_round({1: _report(1.0)})
    assert oort.choose([0, 1]) == [1]
    assert oort.choose([0]) == [0]


def test_the_pacer_lets_slower_clients_in_when_utility_falls() -> None:
    oort = Oort(count=1, preferred_s=5.0, pacer_step_s=3.0, window=2)
    seen = []
    for utility in (5.0, 5.0, 3.0, 3.0, 4.0, 4.0, 1.0, 1.0):
        oort.finish_round({0: _report(utility)})
        seen.append(oort.preferred_s)
    # 10 then 6: a step; 6 then 8: none; 8 then 2: a step
    assert seen == [5, 5, 5, 8, 8, 8, 8, 11]


def test_a_selection_goes_on_from_its_state_to_the_bit() -> None:
    def play(oort: Oort, rounds: range) -> list[list[int]]:
        chosen = []
        for round_ in rounds:
            chosen.append(oort.choose(range(30), {client: 1.0 + client for client in range(30)}))
            oort.finish_round({c: _report((c * 7 + round_) % 5, 1.0 + c % 3) for c in chosen[-1]})
        return chosen

    def new() -> Oort:
        return Oort(count=5, window=3, preferred_s=1.5, seed=4)

    whole, first, second = new(), new(), new()
    expected = play(whole, range(20))
    begun = play(first, range(9))
    second.load_state_dict(json.loads(json.dumps(first.state_dict())))
    assert begun + play(second, range(9, 20)) == expected
    assert second.state_dict() == whole.state_dict()


def test_bad_parameters_and_reports_are_refused_with_all_their_faults() -> None:
    with pytest.raises(ValueError, match=r"(?s)count=0: .*\nexploration=2: .*\npreferred_s=0: .*\nclip=0: "):
        Oort(count=0, exploration=2, preferred_s=0, clip=0)
    oort = Oort(count=1)
    with pytest.raises(ValueError, match=r"(?s)client 1: utility=-1.*\nclient 2: duration_s=nan"):
        oort.finish_round({1: _report(-1.0), 2: _report(1.0, math.nan), 3: _report(1.0)})
    assert oort.state_dict()["clients"] == {}
