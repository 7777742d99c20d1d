"""Who has which samples: every sample has one client, however skewed a partition is."""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from testbed.worker.data.partitions import Dirichlet, Iid, Natural, Shards, dirichlet
from testbed.worker.interfaces.partition import Partition

LABELS = [index % 10 for index in range(1000)]


def label_skew(labels: Sequence[int], parts: Sequence[Sequence[int]]) -> float:
    """The total variation distance between the labels of a client and of all clients, on average of the clients.

    0: all are alike; 1 - 1/L where each has one of L labels that are equally frequent.
    """
    counts = [Counter(labels[index] for index in part) for part in parts]
    everyone = Counter(labels[index] for part in parts for index in part)
    distances = [
        sum(abs(count[label] / count.total() - known / everyone.total()) for label, known in everyone.items()) / 2
        for count in counts
    ]
    return sum(distances) / len(distances)


@given(
    labels=st.lists(st.integers(0, 4), min_size=1, max_size=120),
    clients=st.integers(1, 20),
    least=st.integers(1, 5),
    alpha=st.sampled_from([5e-324, 1e-300, 1e-3, 0.3, 1.0, 5.0, 1e6, 1e308]),
    shards=st.integers(1, 4),
    seed=st.integers(0, 5),
)
@settings(max_examples=150)
def test_every_sample_has_one_client_and_each_client_its_least(
    labels: list[int], clients: int, least: int, alpha: float, shards: int, seed: int
) -> None:
    partitions: list[Partition] = [
        Iid(least=least),
        Dirichlet(alpha=alpha, least=least),
        Shards(shards=shards, least=least),
    ]
    for partition in partitions:
        if len(labels) < clients * least:
            with pytest.raises(ValueError, match=f"clients={clients}: {len(labels)} samples are too few"):
                partition.divide(labels, clients, seed)
            continue
        parts = partition.divide(labels, clients, seed)
        assert sorted(index for part in parts for index in part) == list(range(len(labels)))
        assert len(parts) == clients and min(map(len, parts)) >= least
        assert all(part == sorted(part) for part in parts)
        assert partition.divide(labels, clients, seed) == parts


@pytest.mark.parametrize("partition", [Iid(), Dirichlet(alpha=0.3), Shards()], ids=["iid", "dirichlet", "shards"])
def test_another_seed_divides_in_another_way(partition: Partition) -> None:
    assert partition.divide(LABELS, 10, 0) != partition.divide(LABELS, 10, 1)


def test_iid_parts_are_of_equal_size_and_alike() -> None:
    parts = Iid().divide(LABELS, 7, 3)
    assert sorted(map(len, parts)) == [142, 143, 143, 143, 143, 143, 143]
    assert label_skew(LABELS, parts) < 0.12  # of 143 samples, ten labels: about 0.5 * 10 * 0.8 * sqrt(0.1 * 0.9 / 143)


def test_a_client_of_two_shards_has_two_labels_where_shards_divide_labels() -> None:
    # 20 shards of 50: two of each label
    parts = Shards(shards=2).divide(LABELS, 10, 0)
    assert {len(part) for part in parts} == {100}
    assert {len({LABELS[index] for index in part}) for part in parts} <= {1, 2}
    assert any(len({LABELS[index] for index in part}) == 2 for part in parts)
    # and within a label they are not in the order of indices
    runs = [sorted(index for index in part if LABELS[index] == label) for part in parts for label in range(10)]
    assert any(run and run[-1] - run[0] > 10 * (len(run) - 1) for run in runs)


def test_the_lower_alpha_the_more_skewed() -> None:
    skews = [label_skew(LABELS, Dirichlet(alpha=alpha).divide(LABELS, 10, 1)) for alpha in (1e6, 10.0, 1.0, 0.1, 1e-3)]
    assert skews == sorted(skews)
    assert skews[0] < 0.01 and skews[-1] > 0.6


def test_a_low_alpha_gives_each_label_to_one_client_but_for_what_others_lack() -> None:
    # a thousandth: FedML's redraws would not end, since ten labels do not reach 50 clients
    parts = Dirichlet(alpha=1e-3, least=5).divide(LABELS, 50, 0)
    assert sorted(map(len, parts))[:35] == [5] * 35
    # of 50 shares the two largest are within a factor of ten for about one label in ten
    held = [sorted(sum(LABELS[index] == label for index in part) for part in parts) for label in range(10)]
    assert sum(one[-1] > 10 * one[-2] for one in held) >= 7


@pytest.mark.parametrize("alpha", [1e-320, 1e-3, 0.3, 1.0, 7.0, 1e6, 1e300])
def test_shares_sum_to_one_and_are_spread_as_dirichlets_are(alpha: float) -> None:
    chance = random.Random(5)
    drawn = [dirichlet(alpha, 4, chance) for _ in range(2000)]
    assert all(sum(shares) == pytest.approx(1) and min(shares) >= 0 for shares in drawn)
    mean = sum(shares[0] for shares in drawn) / len(drawn)
    variance = sum((shares[0] - 0.25) ** 2 for shares in drawn) / len(drawn)
    # of a share of n: mean 1/n, variance (1/n)(1 - 1/n) / (n alpha + 1)
    expected = 0.25 * 0.75 / (4 * alpha + 1)
    assert mean == pytest.approx(0.25, abs=5 * math.sqrt(expected / len(drawn)) + 1e-7)
    assert variance == pytest.approx(expected, rel=0.2, abs=1e-12)


def test_bad_parameters_are_refused_together() -> None:
    with pytest.raises(ValueError, match=r"(?s)alpha=0: must be above 0.*\nleast=0: must be a whole number"):
        Dirichlet(alpha=0, least=0)
    with pytest.raises(ValueError, match=r"(?s)shards=1.5: .*\nleast=True: "):
        Shards(shards=1.5, least=True)  # type: ignore[arg-type]
    for alpha in (math.nan, math.inf, -1.0):
        with pytest.raises(ValueError, match="alpha="):
            Dirichlet(alpha=alpha)
    with pytest.raises(ValueError, match=r"(?s)clients=0: .*\nseed=-1: "):
        Iid().divide(LABELS, 0, -1)
    with pytest.raises(ValueError, match="1000 samples are too few for at least 6 each; use at most 166 clients"):
        Iid(least=6).divide(LABELS, 167, 0)


def test_naturally_each_label_is_a_client() -> None:
    labels = [7, 3, 3, 9, 7, 3]
    assert Natural().divide(labels, 3, 0) == [[1, 2, 5], [0, 4], [3]] == Natural().divide(labels, 3, 1)


def test_clients_fewer_than_labels_have_whole_labels_in_equal_numbers() -> None:
    parts = Natural().divide(LABELS, 4, 0)
    of_each = [{LABELS[index] for index in part} for part in parts]
    assert sorted(map(len, of_each)) == [2, 2, 3, 3] and sum(map(len, parts)) == len(LABELS)
    assert set.union(*of_each) == set(LABELS) and Natural().divide(LABELS, 4, 1) != parts


def test_more_clients_than_labels_are_refused_by_the_figure() -> None:
    with pytest.raises(ValueError, match="clients=11: there are 10 labels, and each has one client; use at most 10"):
        Natural().divide(LABELS, 11, 0)
