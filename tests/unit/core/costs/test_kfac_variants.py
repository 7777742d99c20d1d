"""The plan that each variant makes of one small model, told by hand."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from testbed.core.costs.fusion import Cost
from testbed.core.costs.kfac_costs import inverting, planned, preconditioning, with_readiness
from testbed.core.costs.kfac_plan import in_order
from testbed.core.costs.kfac_variants import FUSIONS, GRADIENTS, INVERSES, VARIANTS, Costs, Plan, Settings, make_plan
from testbed.core.device.factored_layer import FactoredLayer
from testbed.core.device.profile import LayerTimes, Profile, WorkTimes
from testbed.core.spec.run_spec import RunSpec
from tests.distributed.harness import make_spec

LAYERS = [FactoredLayer("one", 10, 4), FactoredLayer("two", 5, 40), FactoredLayer("three", 20, 3)]
FACTORS = in_order(LAYERS)  # 10 5 20, then 3 40 4
WORKERS = 2


def _plan(
    variant: str, results: str | None = None, fusion: str = "one", *, most_local: int = 5, size_bytes: int = 1
) -> Plan:
    """A factor of up to `most_local` is inverted sooner than its inverse is sent."""
    costs = Costs(lambda factor: float(factor.dimension), lambda factor: most_local + 0.5, Cost(1.0, 0.1))
    params = {"variant": variant, "results": results, "factor_fusion": fusion, "factor_group_size": f"{size_bytes} B"}
    return make_plan(Settings.of(params), FACTORS, WORKERS, costs)


@pytest.mark.parametrize(
    ("variant", "results", "owners"),
    [
        ("d", "nothing", [None] * 6),
        ("mpd", INVERSES, [0, 1, 0, 1, 0, 1]),
        # by size 40, 20, 10 to whom has least; 5, 4 and 3 by everyone
        ("spd", INVERSES, [1, None, 1, None, 0, None]),
        ("pad", INVERSES, [1, 1, 1, 1, 0, 0]),  # 38 and 44, from the last rank down
        # in the order of backward: three 23, two 45, one 14
        ("pad", GRADIENTS, [0, 0, 1, 1, 0, 0]),
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


def test_a_layer_whose_gradients_come_back_has_one_owner() -> None:
    for variant, results in (("pad", GRADIENTS), ("dp", GRADIENTS)):
        plan = _plan(variant, results)
        assert set(plan.layer_owners) == {layer.name for layer in LAYERS}
        for factor, owner in zip(plan.factors, plan.owners, strict=True):
            assert plan.layer_owners[factor.layer] == owner


def test_what_is_null_follows_from_the_variant() -> None:
    assert Settings.of({}) == Settings.of({"variant": "spd", "results": INVERSES, "factor_fusion": "mg_wfbp"})
    assert (Settings.of({"variant": "mpd"}).fusion, Settings.of({"variant": "dp"}).results) == ("one", GRADIENTS)


LAYER_TIMES = tuple(LayerTimes(name=layer.name, parameters=1, forward_s=1.0, backward_s=2.0) for layer in LAYERS)
WORK = {"one.a": 0.5, "two.a": 0.1, "three.a": 0.2, "three.g": 0.3, "two.g": 0.7, "one.g": 0.4}


def test_a_factor_is_there_once_what_comes_before_its_layer_is_over_and_it_is_computed() -> None:
    ready = [factor.after_s for factor in with_readiness(FACTORS, LAYER_TIMES, WORK.get)]
    # forward 1 s a layer, then all of the last layer's forward before its output's gradient, backward 2 s a layer
    assert ready == pytest.approx([0.5, 1.1, 1.2, 1.3, 2.7, 2.4])
    halved = [factor.after_s for factor in with_readiness(FACTORS, LAYER_TIMES, WORK.get, 2)]
    assert halved == pytest.approx([s / 2 for s in ready])
    assert {factor.after_s for factor in with_readiness(FACTORS, (), {}.get)} == {0.0}


def _spec(strategy: str, **params: Any) -> RunSpec:
    return make_spec(strategy, workers=4, route="sum", strategy_params=params)


def _profile(**given: Any) -> Profile:
    names = [name for factor in FACTORS for name in (factor.name, inverting(factor))]
    names += [preconditioning(layer.name) for layer in LAYERS]
    work = tuple(WorkTimes(name=name, kind="", size=1, seconds=0.01) for name in names)
    return Profile(
        workload="",
        compressor="",
        batch_size=1,
        layers=LAYER_TIMES,
        forward_s=3.0,
        backward_s=6.0,
        optimizer_s=0.0,
        work=work,
        factored=tuple(LAYERS),
        cpu_step_s=9.0 + 15 * 0.01,
        **given,
    )


@pytest.mark.parametrize(
    ("strategy", "params", "shares", "kinds"),
    [
        ("dkfac", {}, (1, 1, 1), ["all_reduce"]),
        ("mpd_kfac", {"factor_every": 2, "inverse_every": 4}, (0.5, 1 / 16, 1), ["all_reduce", *["chain"] * 4]),
        ("pad_kfac", {"factor_fusion": "layers"}, (1, 0.25, 1), ["chain"] * (6 + 4)),
        ("pad_kfac", {"results": "gradients", "factor_fusion": "one"}, (1, 0.25, 0.25), ["chain"] * (5 + 3)),
        ("dp_kfac", {}, (0.25, 0.25, 0.25), ["chain"] * 3),
    ],
)
def test_profiles_have_each_workers_share_and_what_is_sent_besides(
    strategy: str, params: dict[str, Any], shares: tuple[float, ...], kinds: list[str]
) -> None:
    cpu, device = planned(_spec(strategy, **params), _profile(), _profile())
    by_name = {piece.name: piece.share for piece in device.work}
    assert {by_name[factor.name] for factor in FACTORS} == {shares[0]}
    assert {by_name[inverting(factor)] for factor in FACTORS} == {shares[1]}
    assert {by_name[preconditioning(layer.name)] for layer in LAYERS} == {shares[2]}
    assert [one.kind for one in device.collectives] == kinds
    assert cpu.cpu_step_s == pytest.approx(9.0 + 0.01 * (6 * shares[0] + 6 * shares[1] + 3 * shares[2]))
    bare = dataclasses.replace(_profile(), factored=())
    assert planned(_spec(strategy), bare, bare) == (bare, bare)


def test_bytes_beside_gradients_are_those_that_are_sent() -> None:
    elements = sum(factor.elements for factor in FACTORS)
    mpd, _ = planned(_spec("mpd_kfac"), _profile(), _profile())
    whole, *chains = [one.size_bytes for one in mpd.collectives]
    assert whole == sum(chains) == 4 * elements
    gradients, _ = planned(_spec("dp_kfac"), _profile(), _profile())
    assert sorted(one.size_bytes for one in gradients.collectives) == sorted([4 * 10 * 4, 4 * 5 * 40, 4 * 20 * 3])
