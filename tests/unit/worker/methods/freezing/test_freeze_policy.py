from __future__ import annotations

import pytest

from testbed.worker.methods.freezing.freeze_policy import FreezePolicy


def frozen(policy: str, epochs: int, **given: object) -> list[int]:
    asked = FreezePolicy(policy, **given)  # type: ignore[arg-type]
    return [asked.next(epoch) for epoch in range(epochs)]


@pytest.mark.parametrize(
    ("layers", "alpha", "expected"),
    [
        (12, 1 / 3, [0, 4, 7, 9, 10, 11, 11, 12, 12, 12]),
        (24, 1 / 3, [0, 8, 14, 17, 20, 21, 22, 23, 24, 24]),
        (8, 1 / 2, [0, 4, 6, 7, 8, 8, 8, 8, 8, 8]),
    ],
)
def test_the_schedule_is_that_of_the_released_code(layers: int, alpha: float, expected: list[int]) -> None:
    assert frozen("schedule", 10, layers=layers, alpha=alpha) == expected


def test_none_freezes_nothing_and_kept_layers_never_freeze() -> None:
    assert frozen("none", 5, layers=12) == [0] * 5
    assert frozen("schedule", 10, layers=12, keep=2) == [0, 4, 7, 9, 10, 10, 10, 10, 10, 10]
    assert FreezePolicy("none", layers=12).most == 0
    assert FreezePolicy("schedule", layers=12, keep=2).most == 10


def test_by_gradients_it_stops_at_the_quietest_layer_within_the_budget() -> None:
    asked = FreezePolicy("grad_norm", layers=6, alpha=1 / 2)
    assert asked.needs_norms
    # within the budget of three: layer 2; then layer 2 again is the first that is active, and quietest
    assert asked.next(1, [3.0, 2.0, 1.0, 4.0, 4.0, 4.0]) == 2
    assert asked.next(2, [0.0, 0.0, 1.0, 4.0, 4.0, 4.0]) == 2
    # the last one is quietest: the budget, half of the four that are active
    assert asked.next(3, [0.0, 0.0, 3.0, 3.0, 3.0, 1.0]) == 4


def test_a_prefix_never_gets_shorter_whatever_the_epoch() -> None:
    asked = FreezePolicy("schedule", layers=12, alpha=1 / 3)
    assert [asked.next(epoch) for epoch in (3, 1, 0, 4)] == [9, 9, 9, 10]
    asked.frozen = 11  # as from a checkpoint
    assert asked.next(2) == 11


def test_parameters_out_of_range_are_refused_together() -> None:
    with pytest.raises(ValueError, match="policy=often: unknown; known: none, schedule, grad_norm") as caught:
        FreezePolicy("often", layers=0, alpha=1.0, keep=-1)
    for line in ("alpha=1.0: must be above 0 and below 1", "keep=-1: must be", "layers=0: must be"):
        assert line in str(caught.value)
    with pytest.raises(ValueError, match="keep=9: the model has 8 layers"):
        FreezePolicy("none", layers=8, keep=9)
    asked = FreezePolicy("grad_norm", layers=3)
    with pytest.raises(ValueError, match="gradient_norms: there are 0, of 3 layers"):
        asked.next(1)
    with pytest.raises(ValueError, match=r"gradient_norms\[1\]=nan"):
        asked.next(1, [1.0, float("nan"), 1.0])
    with pytest.raises(ValueError, match="epoch=-1"):
        asked.next(-1, [1.0] * 3)
