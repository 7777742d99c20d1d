"""What a server makes of a round's deltas, told by hand."""

from __future__ import annotations

import io
import itertools
import math
from collections.abc import Callable, Sequence

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from testbed.worker.methods.federated.aggregation.adaptive import FedAdagrad, FedAdam, FedYogi
from testbed.worker.methods.federated.aggregation.fedbuff import FedBuff
from testbed.worker.methods.federated.aggregation.fold import Update, combined
from testbed.worker.methods.federated.aggregation.rules import FedAvg, FedAvgM, FedDyn, FedNova, Rule, Scaffold
from testbed.worker.methods.federated.aggregation.weighting import BySamples

RULES: dict[str, Callable[[], Rule]] = {
    "fedavg": FedAvg,
    "fedavgm": FedAvgM,
    "fedadam": FedAdam,
    "fedyogi": FedYogi,
    "fedadagrad": FedAdagrad,
    "fednova": lambda: FedNova(momentum=0.5),
    "feddyn": lambda: FedDyn(clients=9, alpha=0.1),
    "scaffold": lambda: Scaffold(clients=9),
}
FLOATS = st.floats(-100, 100, width=32)


def _update(client: int, *values: float, weight: float = 1.0, steps: float = 1.0, staleness: int = 0) -> Update:
    delta = [torch.tensor(value) for value in values]
    return Update(client=client, weight=weight, steps=steps, staleness=staleness, delta=delta)


def _of(change: Sequence[Tensor]) -> list[float]:
    assert all(tensor.dtype == torch.float64 for tensor in change)
    return [float(tensor) for tensor in change]


# by samples 1 and 3 the mean of 5 and 1 is 2; then that of 1 and 1 is 1
FIRST = [_update(0, 5.0, weight=1), _update(1, 1.0, weight=3)]
SECOND = [_update(0, 1.0, weight=1), _update(1, 1.0, weight=3)]


@pytest.mark.parametrize(
    ("rule", "first", "second"),
    [
        (FedAvg(), 2.0, 1.0),
        (FedAvg(learning_rate=0.5), 1.0, 0.5),
        (FedAvgM(momentum=0.5), 2.0, 0.5 * 2 + 1),
        (FedAvgM(momentum=0.5, learning_rate=0.1), 0.2, 0.2),
        (
            FedAdam(learning_rate=0.1, beta1=0.5, beta2=0.75, tau=0.2),
            0.1 * 1.0 / (math.sqrt(0.75 * 0.04 + 0.25 * 4) + 0.2),  # m = 1, v = 1.03
            0.1 * 1.0 / (math.sqrt(0.75 * 1.03 + 0.25 * 1) + 0.2),  # m = 0.5 + 0.5
        ),
        (
            FedYogi(learning_rate=0.1, beta1=0.5, beta2=0.75, tau=0.2),
            0.1 * 1.0 / (math.sqrt(0.04 + 0.25 * 4) + 0.2),  # v = 1.04
            0.1 * 1.0 / (math.sqrt(1.04 - 0.25 * 1) + 0.2),
        ),
        (
            FedAdagrad(learning_rate=0.1, tau=0.2),
            0.1 * 2.0 / (math.sqrt(0.04 + 4) + 0.2),
            0.1 * 1.0 / (math.sqrt(0.04 + 4 + 1) + 0.2),
        ),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Rule) else None,
)
def test_two_rounds_told_by_hand(rule: Rule, first: float, second: float) -> None:
    assert _of(rule.round(FIRST)) == pytest.approx([first])
    assert _of(rule.round(SECOND)) == pytest.approx([second])


def test_fednova_told_by_hand() -> None:
    sent = [_update(0, 4.0, weight=1, steps=2), _update(1, 4.0, weight=3, steps=4)]
    # progress 0.25 * 4/2 + 0.75 * 4/4 = 1.25 a step; steps 0.25 * 2 + 0.75 * 4 = 3.5
    assert _of(FedNova().round(sent)) == pytest.approx([4.375])
    assert _of(FedNova(effective_steps=2).round(sent)) == pytest.approx([2.5])
    slow = FedNova(momentum=0.5)
    assert [_of(slow.round(sent))[0] for _ in range(2)] == pytest.approx([4.375, 1.5 * 4.375])


def test_feddyn_told_by_hand() -> None:
    rule = FedDyn(clients=4, alpha=0.5)
    # mean 2, h = -0.5 * 2/4 * 2 = -0.5; then mean 1, h = -0.5 - 0.25
    assert _of(rule.round([_update(0, 1.0, weight=9), _update(1, 3.0)])) == pytest.approx([2 + 1])
    assert _of(rule.round([_update(0, 0.0), _update(3, 2.0)])) == pytest.approx([1 + 1.5])
    assert _of(rule.h) == pytest.approx([-0.75])
    with pytest.raises(ValueError, match="clients=4: 5 have sent"):
        rule.round([_update(client, 0.0) for client in range(5)])


def test_scaffold_told_by_hand() -> None:
    rule = Scaffold(clients=4, learning_rate=0.5)
    # of the model 0.5 * mean(1, 3); of the variate 2/4 * mean(0.2, 0.6), and again
    for c in (0.2, 0.4):
        assert _of(rule.round([_update(0, 1.0, 0.2, weight=9), _update(1, 3.0, 0.6)])) == pytest.approx([1.0])
        assert _of(rule.variate) == pytest.approx([c])
    with pytest.raises(ValueError, match=r"come after the deltas .*: tensors of shapes \[\(\)\]; must be of \[\]"):
        rule.round([_update(0, 1.0)])
    with pytest.raises(ValueError, match=r"Scaffold: tensors of shapes \[\(2,\)\]; must be of \[\(\)\]"):
        rule.round([Update(client=0, delta=[torch.zeros(2)] * 2)])
    with pytest.raises(ValueError, match="clients=4: 5 have sent"):
        rule.round([_update(client, 0.0, 0.0) for client in range(5)])
    assert _of(rule.variate) == pytest.approx([0.4])


def test_fedbuff_told_by_hand() -> None:
    buffer = FedBuff(size=3, rule=FedAvg(learning_rate=0.5))
    assert buffer.add(_update(0, 3.0, weight=99)) is None
    assert buffer.add(_update(1, 6.0, staleness=3)) is None
    change = buffer.add(_update(0, 9.0, staleness=8))
    assert change is not None
    assert _of(change) == pytest.approx([0.5 * (3 + 6 / 2 + 9 / 3) / 3])
    assert (buffer.version, buffer.staleness(0), buffer.staleness(1)) == (1, 1, 0)
    for version in (-1, 2):
        with pytest.raises(ValueError, match=f"version={version}: must be one of 0 to 1"):
            buffer.staleness(version)
    # the next step begins with nothing
    last = [buffer.add(_update(client, 2.0)) for client in range(3)][-1]
    assert last is not None
    assert _of(last) == pytest.approx([1.0])


ROUNDS = st.lists(
    st.lists(st.tuples(FLOATS, FLOATS, st.floats(1, 100), st.floats(1, 50)), min_size=1, max_size=5),
    min_size=1,
    max_size=4,
)


def _rounds(drawn: list[list[tuple[float, float, float, float]]], steps: float | None = None) -> list[list[Update]]:
    return [
        [
            Update(
                client=client, weight=weight, steps=steps or own, delta=[torch.tensor([a, b]), torch.tensor([b])] * 2
            )
            for client, (a, b, weight, own) in enumerate(one)
        ]
        for one in drawn
    ]


@given(drawn=ROUNDS, steps=st.floats(0.5, 50))
@settings(max_examples=50)
def test_rules_are_fedavg_where_they_have_nothing_to_do(
    drawn: list[list[tuple[float, float, float, float]]], steps: float
) -> None:
    plain, still, nova = FedAvg(learning_rate=0.7), FedAvgM(learning_rate=0.7, momentum=0), FedNova(learning_rate=0.7)
    for updates in _rounds(drawn, steps):
        expected = plain.round(updates)
        torch.testing.assert_close(still.round(updates), expected, rtol=0, atol=0)
        torch.testing.assert_close(nova.round(updates), expected, rtol=1e-9, atol=1e-9)
        buffer = FedBuff(size=len(updates), rule=FedAvg(learning_rate=0.7))
        change = [buffer.add(update) for update in updates][-1]
        alike = [Update(client=one.client, delta=one.delta) for one in updates]
        torch.testing.assert_close(change, plain.round(alike), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", RULES)
@given(drawn=ROUNDS, cut=st.integers(0, 3))
@settings(max_examples=15)
def test_a_rule_goes_on_from_its_state_to_the_bit_and_in_any_order(
    name: str, drawn: list[list[tuple[float, float, float, float]]], cut: int
) -> None:
    rounds = _rounds(drawn)
    rule, other = RULES[name](), RULES[name]()
    for index, updates in enumerate(rounds):
        if index == min(cut, len(rounds) - 1):
            kept = io.BytesIO()
            torch.save(rule.state_dict(), kept)
            kept.seek(0)
            other.load_state_dict(torch.load(kept, weights_only=True))
        change = rule.round(updates)
        if index >= cut:
            assert _bits(other.round(reversed(updates))) == _bits(change)
    if len(rounds) > cut:
        assert {key: _bits(value) for key, value in other.state_dict().items()} == {
            key: _bits(value) for key, value in rule.state_dict().items()
        }


def test_updates_that_cannot_be_used_change_nothing() -> None:
    good = _update(0, 1.0)
    odd = Update(client=1, delta=[torch.zeros(2)])
    infinite = _update(1, math.inf)
    for others, why in (
        ([], "no client has sent anything"),
        ([good, good], "client 0 has sent twice"),
        ([good, odd], r"client 1: tensors of shapes \[\(2,\)\]; must be of \[\(\)\]"),
        ([good, infinite], "client 1: tensor 0 is not finite"),
        ([infinite], "client 1: tensor 0 is not finite"),
        ([good, _update(1, 1.0, 2.0)], "client 1: tensors of shapes"),
    ):
        rule = FedAdam()
        rule.round([good])
        before = rule.state_dict()
        with pytest.raises(ValueError, match=why):
            rule.round(others)
        assert rule.state_dict() == before
    buffer = FedBuff(size=2)
    assert buffer.add(good) is None
    with pytest.raises(ValueError, match="not finite"):
        buffer.add(infinite)
    change = buffer.add(_update(2, 3.0))
    assert change is not None
    assert _of(change) == [2.0]


@pytest.mark.parametrize("name", [name for name in RULES if name != "fedavg"])
def test_a_round_of_other_shapes_changes_nothing(name: str) -> None:
    # shapes that torch would broadcast
    rule = RULES[name]()
    rule.round([Update(client=0, delta=[torch.ones(1), torch.ones(1)])])
    before = {key: _bits(value) for key, value in rule.state_dict().items()}
    other = [torch.ones(3, dtype=torch.float64)] * 2
    for attempt in (lambda: rule.round([Update(client=0, delta=other)]), lambda: rule.move(other, 1)):
        with pytest.raises(ValueError, match=r"\w: tensors of shapes \[\(3,\).*must be of \[\(1,\)"):
            attempt()
    assert {key: _bits(value) for key, value in rule.state_dict().items()} == before


def test_a_buffer_takes_no_shapes_that_its_rule_does_not_know() -> None:
    buffer = FedBuff(size=1, rule=FedAvgM(momentum=0.5))
    assert buffer.add(_update(0, 2.0)) is not None
    with pytest.raises(ValueError, match=r"FedAvgM: tensors of shapes \[\(3,\)\]"):
        buffer.add(Update(client=0, delta=[torch.ones(3)]))
    assert buffer.version == 1
    change = buffer.add(_update(0, 2.0))
    assert change is not None
    assert _of(change) == [3.0]


def test_deltas_are_not_changed_and_halves_are_summed_in_doubles() -> None:
    for dtype in (torch.float16, torch.float64):
        updates = [Update(client=client, delta=[torch.full((3,), 60000.0, dtype=dtype)]) for client in range(4)]
        for order in itertools.permutations(updates, 4):
            assert combined(BySamples(), order)[0].tolist() == [60000.0] * 3
        assert all(update.delta[0].tolist() == [60000.0] * 3 for update in updates)


def test_bad_parameters_are_refused_with_all_their_faults() -> None:
    for make, why in (
        (lambda: FedAvg(learning_rate=0), "learning_rate=0"),
        (lambda: FedAvgM(learning_rate=-1, momentum=1), r"(?s)learning_rate=-1: .*\nmomentum=1: "),
        (lambda: FedAdam(beta1=1, beta2=-1, tau=0), r"(?s)beta1=1: .*\nbeta2=-1: .*\ntau=0: "),
        (lambda: FedNova(momentum=2, effective_steps=0), r"(?s)momentum=2: .*\neffective_steps=0: "),
        (lambda: FedDyn(clients=0, alpha=math.nan), r"(?s)clients=0: .*\nalpha=nan: "),
        (lambda: Scaffold(clients=0, learning_rate=0), r"(?s)clients=0: .*\nlearning_rate=0: "),
        (lambda: FedBuff(size=0, exponent=-1, rule=FedNova()), r"(?s)size=0: .*\nexponent=-1: "),
        (lambda: FedBuff(rule=FedNova()), "rule=FedNova: "),
        (lambda: FedBuff(rule=Scaffold(clients=2)), "rule=Scaffold: "),
        (lambda: FedBuff(rule=FedDyn(clients=2)), "rule=FedDyn: "),
    ):
        with pytest.raises(ValueError, match=why):
            make()


def _bits(tensors: Sequence[Tensor]) -> list[bytes]:
    return [tensor.numpy().tobytes() for tensor in tensors]
