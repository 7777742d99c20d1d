"""Stragglers: lognormal, drawn anew for each run of each client, and what they cost where rounds wait for the last."""

from __future__ import annotations

import heapq
import math
import statistics

import pytest

from testbed.worker.methods.federated.clients.slowness import Slowness


def test_factors_are_lognormal_above_1_and_hang_on_nothing_but_seed_client_and_run() -> None:
    slowness = Slowness(sigma=1.0, seed=3)
    drawn = {(client, run): slowness.factor(client, run) for client in range(100) for run in range(100)}
    again = Slowness(sigma=1.0, seed=3)
    assert all(again.factor(client, run) == drawn[client, run] for client, run in reversed(drawn))
    assert Slowness(sigma=1.0, seed=4).factor(0, 0) != drawn[0, 0] or Slowness(sigma=1.0, seed=4).factor(1, 0) != 1
    found = sorted(drawn.values())
    assert found[0] == 1.0
    assert abs(sum(one == 1.0 for one in found) / len(found) - 0.5) < 0.02
    # quantiles of exp(z) at 84.13 % and 97.72 % of a normal's are exp(1) and exp(2)
    for share, sigmas in ((0.8413, 1.0), (0.9772, 2.0)):
        assert abs(math.log(found[int(share * len(found))]) - sigmas) < 0.1
    assert abs(statistics.fmean(found) - 1.887) < 0.06
    assert len({factor for factor in found if factor > 1}) > 4800


def test_without_any_all_are_alike_and_what_is_no_sigma_is_refused() -> None:
    assert {Slowness().factor(client, 0) for client in range(50)} == {1.0}
    with pytest.raises(ValueError, match=r"(?s)sigma=-1: must be at least 0.*seed=-1"):
        Slowness(sigma=-1, seed=-1)


@pytest.mark.parametrize(("sigma", "least", "most"), [(0.0, 1.0, 1.0), (0.5, 1.6, 2.1), (1.0, 2.2, 3.2)])
def test_whoever_waits_for_the_last_of_ten_does_less_in_the_same_time(sigma: float, least: float, most: float) -> None:
    """Of clients that take a second each, in 300 s, on ten workers."""
    slowness, until_s, workers = Slowness(sigma=sigma), 300.0, 10
    now_s, rounds = 0.0, 0
    while True:
        now_s += max(slowness.factor(worker, rounds) for worker in range(workers))
        if now_s > until_s:
            break
        rounds += 1
    ends = [(slowness.factor(worker, 0), worker, 0) for worker in range(workers)]
    heapq.heapify(ends)
    alone = 0
    while ends[0][0] <= until_s:
        end_s, worker, run = ends[0]
        alone += 1
        heapq.heapreplace(ends, (end_s + slowness.factor(worker, run + 1), worker, run + 1))
    assert least <= alone / (workers * rounds) <= most
