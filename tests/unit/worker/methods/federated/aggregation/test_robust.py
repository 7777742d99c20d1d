"""Defences against clients that lie, and attackers to try them with."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Sequence
from statistics import NormalDist

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from testbed.worker.methods.federated.aggregation.attacks import (
    Attack,
    Gaussian,
    LittleIsEnough,
    SameValue,
    SignFlip,
    most_deviations,
)
from testbed.worker.methods.federated.aggregation.fold import Update
from testbed.worker.methods.federated.aggregation.robust import Defence, Krum, Median, NormClipping, TrimmedMean
from testbed.worker.methods.federated.aggregation.rules import FedAvg

DEFENCES: dict[str, Defence] = {
    "median": Median(),
    "trimmed": TrimmedMean(most_liars=2),
    "krum": Krum(most_liars=2),
    "multi_krum": Krum(most_liars=2, chosen=None),
    "clipping": NormClipping(),
}
ATTACKS: dict[str, Attack] = {
    "flip": SignFlip(scale=10),
    "gaussian": Gaussian(deviation=100),
    "same": SameValue(value=-50),
}


def _updates(*deltas: Sequence[float], weights: Sequence[float] | None = None) -> list[Update]:
    """Each number is a parameter of its own, without dimensions."""
    shares = weights or [1.0] * len(deltas)
    return [
        Update(client=client, weight=weight, delta=[torch.tensor(value) for value in delta])
        for client, (delta, weight) in enumerate(zip(deltas, shares, strict=True))
    ]


def _of(tensors: Sequence[Tensor]) -> list[float]:
    assert all(tensor.dtype == torch.float64 for tensor in tensors)
    return [float(tensor) for tensor in tensors]


FIVE = _updates([0.0, 7.0], [1.0, 7.0], [2.0, 7.0], [3.5, 7.0], [100.0, 7.0])


@pytest.mark.parametrize(
    ("defence", "expected"),
    [
        (Median(), 2.0),
        (TrimmedMean(most_liars=0), 21.3),
        (TrimmedMean(most_liars=1), 6.5 / 3),
        (TrimmedMean(most_liars=2), 2.0),
        # two nearest of each: 1 + 4, 1 + 1, 1 + 2.25, 2.25 + 6.25, far
        (Krum(most_liars=1), 1.0),
        (Krum(most_liars=1, chosen=2), 1.5),
        (Krum(most_liars=1, chosen=None), 1.5),
        (Krum(most_liars=1, chosen=3), 1.0),
        (Krum(most_liars=1, chosen=4), 6.5 / 4),
    ],
)
def test_defences_told_by_hand(defence: Defence, expected: float) -> None:
    assert _of(defence.combined(FIVE)) == pytest.approx([expected, 7.0])


def test_scores_and_an_even_median_told_by_hand() -> None:
    stacks = [torch.tensor([0.0, 1.0, 2.0, 3.5, 100.0]), torch.zeros(5, 2, 3), torch.zeros(5, 0)]
    expected = [5.0, 2.0, 3.25, 8.5, 96.5**2 + 98**2]
    assert Krum(most_liars=1).scores(stacks).tolist() == pytest.approx(expected)
    # over all parameters together
    twice = Krum(most_liars=1).scores([stacks[0], stacks[0]]).tolist()
    assert twice == pytest.approx([2 * score for score in expected])
    assert _of(Median().combined(_updates([1.0], [2.0], [5.0], [100.0]))) == [3.5]


def test_norms_are_clipped_as_told_by_hand() -> None:
    sent = _updates([3.0, 4.0], [0.6, 0.8], weights=[1, 3])  # of norms 5 and 1
    assert _of(NormClipping(norm=1).combined(sent)) == pytest.approx([0.6, 0.8])
    assert _of(NormClipping(norm=2).combined(sent)) == pytest.approx([(1.2 + 3 * 0.6) / 4, (1.6 + 3 * 0.8) / 4])
    assert _of(NormClipping(norm=9).combined(sent)) == pytest.approx([(3 + 3 * 0.6) / 4, (4 + 3 * 0.8) / 4])
    # the median of both norms is 3
    assert _of(NormClipping().combined(sent)) == pytest.approx([(1.8 + 3 * 0.6) / 4, (2.4 + 3 * 0.8) / 4])
    assert _of(NormClipping().combined(_updates([0.0], [0.0]))) == [0.0]


@pytest.mark.parametrize("name", DEFENCES)
def test_the_order_of_updates_makes_no_difference(name: str) -> None:
    chance = random.Random(1)
    sent = [Update(client=client, delta=[torch.rand(2, 3), torch.rand(())], weight=1.0 + client) for client in range(8)]
    first = [tensor.numpy().tobytes() for tensor in DEFENCES[name].combined(sent)]
    for _ in range(5):
        chance.shuffle(sent)
        assert [tensor.numpy().tobytes() for tensor in DEFENCES[name].combined(sent)] == first


LISTS = st.lists(st.floats(-10, 10, width=32), min_size=3, max_size=3)


@given(
    honest=st.lists(LISTS, min_size=8, max_size=12),
    lies=st.lists(st.lists(st.floats(-(2.0**99), 2.0**99, width=32), min_size=3, max_size=3), max_size=2),
    at=st.integers(0, 7),
)
@settings(max_examples=60)
def test_lies_of_a_fifth_stay_within_what_honest_clients_sent(
    honest: list[list[float]], lies: list[list[float]], at: int
) -> None:
    sent = _updates(*honest[:at], *lies, *honest[at:])
    for defence in (Median(), TrimmedMean(most_liars=2)):
        for index, value in enumerate(_of(defence.combined(sent))):
            column = [one[index] for one in honest]
            assert min(column) - 1e-9 <= value <= max(column) + 1e-9
    # whoever is far away is never the one
    far = [[1e6 + abs(value) for value in lie] for lie in lies]
    assert _of(Krum(most_liars=2).combined(_updates(*honest[:at], *far, *honest[at:]))) in honest


def _train(defence: Defence | None, attack: Attack, liars: int) -> float:
    """How far from the mean optimum of ten clients, each of which goes half the way to its own, rounds end."""
    generator = torch.Generator().manual_seed(2)
    optima = [1 + 0.1 * torch.randn(6, generator=generator) for _ in range(10)]
    rule, w = FedAvg(), torch.zeros(6, dtype=torch.float64)
    for _ in range(20):
        deltas = [[(optimum - w.float()) / 2] for optimum in optima]
        deltas[:liars] = attack.sent(deltas[:liars], generator)
        sent = [Update(client=client, delta=delta) for client, delta in enumerate(deltas)]
        change = rule.round(sent) if defence is None else rule.move(defence.combined(sent), len(sent))
        w = w + change[0]
    return float((w - torch.stack(optima).mean(dim=0)).abs().max())


@pytest.mark.parametrize("attack", ATTACKS)
def test_a_fifth_of_attackers_ruins_the_mean_but_not_the_defences(attack: str) -> None:
    assert _train(None, ATTACKS[attack], 0) < 1e-5
    assert _train(None, ATTACKS[attack], 2) > 2
    for name, defence in DEFENCES.items():
        assert _train(defence, ATTACKS[attack], 2) < (0.6 if name == "clipping" else 0.3), name


def test_a_little_is_enough_where_more_would_be_left_out() -> None:
    honest = [[1.0 + 0.1 * index] for index in range(-4, 5)]
    attack = LittleIsEnough(clients=13, attackers=4, z=1.0)
    lies = attack.sent([[torch.tensor(1.0 + 0.1 * index)] for index in (-3, -1, 1, 3)], torch.Generator())
    little = _updates(*honest, *[[float(one[0])] for one in lies])
    # Krum takes the lie, as four that are the same look close; a grosser one it leaves
    assert _of(Krum(most_liars=4).combined(little)) == pytest.approx([1 - 0.1 * math.sqrt(5)])
    assert _of(Krum(most_liars=4).combined(_updates(*honest, *[[-9.0 + k] for k in range(4)])))[0] in [
        float(torch.tensor(value[0])) for value in honest
    ]


def test_attackers_told_by_hand() -> None:
    honest = [[torch.tensor([1.0, -2.0]), torch.tensor(5.0)], [torch.tensor([3.0, -2.0]), torch.tensor(7.0)]]
    generator = torch.Generator().manual_seed(1)
    assert [_lists(one) for one in SignFlip(scale=2).sent(honest, generator)] == [[[-2, 4], -10], [[-6, 4], -14]]
    assert [_lists(one) for one in SameValue(value=9).sent(honest, generator)] == [[[9, 9], 9]] * 2
    # means 2, -2, 6 and deviations 1, 0, 1
    little = LittleIsEnough(clients=5, attackers=2, z=1.5).sent(honest, generator)
    assert [_lists(one) for one in little] == [[[0.5, -2.0], 4.5]] * 2
    noise = Gaussian(deviation=3).sent([[torch.zeros(4000)], [torch.zeros(4000)]], generator)
    assert float(noise[0][0].std()) == pytest.approx(3, rel=0.05) and not torch.equal(noise[0][0], noise[1][0])
    again = Gaussian(deviation=3).sent([[torch.zeros(4000)]], torch.Generator().manual_seed(1))
    assert torch.equal(noise[0][0], again[0][0])
    assert _lists(honest[0]) == [[1, -2], 5]
    for attack in (SignFlip(), Gaussian(), SameValue(), LittleIsEnough(clients=5, attackers=1)):
        halves = attack.sent([[torch.ones(2, dtype=torch.float16)]], generator)
        assert halves[0][0].dtype == torch.float16
        assert attack.sent([], generator) == []


@pytest.mark.parametrize(
    ("clients", "attackers", "share"),
    [(5, 1, 2 / 4), (50, 24, 24 / 26), (50, 10, 24 / 40), (51, 25, 25 / 26), (3, 1, 1 / 2), (10, 1, 1 / 2)],
)
def test_most_deviations_told_by_hand(clients: int, attackers: int, share: float) -> None:
    # 26 of 50 are more than half: 24 attackers need 2 honest ones beside them, and 24 of 26 are on the other side.
    # One of 10 needs 5 of 9, more than half of the honest: the mean is already too far out
    assert NormalDist().cdf(most_deviations(clients, attackers)) == pytest.approx(share)
    assert LittleIsEnough(clients=clients, attackers=attackers).z == most_deviations(clients, attackers)


def test_bad_parameters_and_too_few_clients_are_refused() -> None:
    for make, why in (
        (lambda: Krum(most_liars=-1, chosen=0), r"(?s)most_liars=-1: .*\nchosen=0: "),
        (lambda: TrimmedMean(most_liars=-1), "most_liars=-1"),
        (lambda: NormClipping(norm=0), "norm=0"),
        (lambda: SignFlip(scale=0), "scale=0"),
        (lambda: Gaussian(deviation=math.inf), "deviation=inf"),
        (lambda: SameValue(value=math.nan), "value=nan"),
        (lambda: LittleIsEnough(clients=2, attackers=2, z=-1), r"(?s)clients=2: .*\nz=-1: "),
        (lambda: LittleIsEnough(clients=4, attackers=2), r"attackers=2: .* at most 1"),
        (lambda: most_deviations(10, 5), "attackers=5: must be a whole number, at least 1 and at most 4"),
        (lambda: most_deviations(2, 0), r"(?s)clients=2: .*\nattackers=0: "),
    ):
        with pytest.raises(ValueError, match=why):
            make()
    for defence, least in (
        (Median(), 1),
        (TrimmedMean(most_liars=2), 5),
        (Krum(most_liars=0), 3),
        (Krum(most_liars=2), 7),
        (Krum(most_liars=1, chosen=9), 10),
    ):
        sent = _updates(*([[1.0]] * least))
        assert _of(defence.combined(sent)) == [1.0]
        with pytest.raises(ValueError, match=f"{least - 1} clients have sent something; needs {least} or more"):
            defence.combined(sent[1:])


@pytest.mark.parametrize("name", DEFENCES)
def test_what_cannot_be_combined_is_refused(name: str) -> None:
    good = _updates(*([[1.0]] * 7))
    for others, why in (
        ([Update(client=9, delta=[torch.tensor(math.nan)])], "client 9: tensor 0 is not finite"),
        ([Update(client=9, delta=[torch.zeros(1)])], "client 9: tensors of shapes"),
        (good[:1], "client 0 has sent twice"),
    ):
        with pytest.raises(ValueError, match=why):
            DEFENCES[name].combined(list(itertools.chain(good, others)))


def _lists(tensors: Sequence[Tensor]) -> list[object]:
    return [tensor.tolist() for tensor in tensors]
