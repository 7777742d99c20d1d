"""The plan that each variant makes of one small model, told by hand."""

from __future__ import annotations

import pytest

from testbed.core.fusion import Cost
from testbed.core.kfac_plan import FactoredLayer, in_order
from testbed.core.kfac_variants import FUSIONS, GRADIENTS, INVERSES, VARIANTS, Costs, Plan, make_plan

LAYERS = [FactoredLayer("one", 10, 4), FactoredLayer("two", 5, 40), FactoredLayer("three", 20, 3)]
FACTORS = in_order(LAYERS)  # 10 5 20, then 3 40 4
WORKERS = 2


def _plan(variant: str, results: str = "", fusion: str = "one", *, most_local: int = 5, size_bytes: int = 1) -> Plan:
    """A factor of up to `most_local` is inverted sooner than its inverse is sent."""
    costs = Costs(lambda factor: float(factor.dimension), lambda elements: most_local + 0.5, Cost(1.0, 0.1))
    return make_plan(variant, results or VARIANTS[variant].results[0], FACTORS, WORKERS, costs, fusion, size_bytes)


@pytest.mark.parametrize(
    ("variant", "results", "owners"),
    [
        ("d", "nothing", [None] * 6),
        ("mpd", INVERSES, [0, 1, 0, 1, 0, 1]),
        # by size 40, 20, 10 to whom has least; 5, 4 and 3 by everyone
        ("spd", INVERSES, [1, None, 1, None, 0, None]),
        ("pad", INVERSES, [0, 0, 0, 0, 1, 1]),  # 38 and 44
        # in the order of backward: three 23, two 45, one 14
        ("pad", GRADIENTS, [1, 1, 0, 0, 1, 1]),
        ("dp", GRADIENTS, [1, 0, 1, 1, 0, 1]),  # 45 to one, 23 and 14 to the other
    ],
)
def test_who_inverts_what(variant: str, results: str, owners: list[int | None]) -> None:
    assert list(_plan(variant, results).owners) == owners


def test_factors_travel_together_as_the_rule_says_and_never_to_two_owners() -> None:
    assert _plan("mpd").groups == ((0, 1, 2, 3, 4, 5),)
    assert _plan("spd", fusion="layers").groups == tuple((index,) for index in range(6))
    assert _plan("pad").groups == ((0, 1, 2, 3), (4, 5))
    assert _plan("spd", fusion="size", size_bytes=4 * 275).groups == ((0, 1), (2, 3), (4,), (5,))
    assert _plan("dp").groups == ()


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("fusion", FUSIONS)
def test_every_factor_travels_once(variant: str, fusion: str) -> None:
    plan = _plan(variant, fusion=fusion, size_bytes=500)
    sent = [index for group in plan.groups for index in group]
    assert sent == ([] if variant == "dp" else list(range(6)))
    if VARIANTS[variant].factors_to == "owner":
        assert all(len({plan.owners[index] for index in group}) == 1 for group in plan.groups)


def test_owners_that_are_known_are_kept() -> None:
    known = [1, 1, 0, 0, 1, 0]
    costs = Costs(lambda factor: 1.0, lambda elements: 1.0, Cost(1.0, 0.1))
    assert list(make_plan("mpd", INVERSES, FACTORS, WORKERS, costs, "one", 1, known).owners) == known


def test_a_layer_whose_gradients_come_back_has_one_owner() -> None:
    for variant, results in (("pad", GRADIENTS), ("dp", GRADIENTS)):
        plan = _plan(variant, results)
        assert set(plan.layer_owners) == {layer.name for layer in LAYERS}
        for factor, owner in zip(plan.factors, plan.owners, strict=True):
            assert plan.layer_owners[factor.layer] == owner
