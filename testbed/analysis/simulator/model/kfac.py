"""What a step of distributed K-FAC does besides: factors, who inverts them, and what of both travels.

The plan is the one that workers make of the same profile (`core.costs.kfac_variants`); it is simulated as it is from
their
second step on, since the first has none during its backward.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from testbed.core.costs.collective import scaled_chunk_bytes
from testbed.core.costs.kfac_costs import inverting, plan_for, preconditioning
from testbed.core.costs.kfac_plan import in_order
from testbed.core.costs.kfac_variants import GRADIENTS, VARIANTS, Plan, Settings
from testbed.core.device.factored_layer import FactoredLayer
from testbed.core.device.profile import Profile
from testbed.core.errors import raise_input_faults
from testbed.core.spec.run_spec import RunSpec


@dataclass(frozen=True)
class FactorWork:
    """The computing of one factor."""

    at_s: float
    """Of forward and backward, what was computed before it: neither other factors nor compression."""
    seconds: float
    rank: int | None
    """Who computes it; None: every rank."""
    buckets_before: int
    """How many were complete before it."""


@dataclass(frozen=True)
class Group:
    """Factors that are reduced together."""

    elements: int
    owner: int | None
    """Who is told the sum; None: all."""
    last: int
    """Of the factors as they are computed, with which it and all groups before it are complete."""


@dataclass(frozen=True)
class SecondOrderPlan:
    """Of a step that takes factors and inverts them."""

    factors: tuple[FactorWork, ...]
    """As forward and backward reach them."""
    groups: tuple[Group, ...]
    """In the order in which they leave."""
    is_pipelined: bool
    """A group leaves once it is complete, not after backward."""
    traces: int
    """Numbers that are averaged before factors are inverted."""
    inverting_s: tuple[float, ...]
    """Of each rank, of what it inverts for all."""
    inverting_everyones_s: float
    preconditioning_s: tuple[float, ...]
    """Of each rank."""
    results: tuple[int, ...]
    """Elements that each rank broadcasts."""
    sends_gradients: bool
    """Results are preconditioned gradients, not inverses, of which D-KFAC sends none."""
    chunk_bytes: float
    """Of chains."""

    @property
    def work_s(self) -> float:
        """On average over ranks."""
        ranks = len(self.inverting_s)
        seen_s = sum(factor.seconds / (1 if factor.rank is None else ranks) for factor in self.factors)
        each_s = (sum(self.inverting_s) + sum(self.preconditioning_s)) / ranks
        return seen_s + each_s + self.inverting_everyones_s

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> SecondOrderPlan:
        made: dict[str, Any] = {key: tuple(value) if isinstance(value, list) else value for key, value in data.items()}
        made["factors"] = tuple(FactorWork(**one) for one in data["factors"])
        made["groups"] = tuple(Group(**one) for one in data["groups"])
        return cls(**made)


def second_order_plan(spec: RunSpec, device: Profile, ends: Sequence[int]) -> SecondOrderPlan:
    """
    Args:
        ends: of the buckets, in elements from the model's end.

    Raises:
        InputError: the strategy's parameters ask for what is not simulated, or the profile is of another strategy.
    """
    raise_input_faults(list(_faults(spec, device)))
    settings, order = Settings.of(spec.strategy.params), dict(_positions(device, ends))
    variant, results, form = VARIANTS[settings.variant], settings.results, settings.form
    work_s, plan = _work_s(device), plan_for(spec, settings, device.factored, device)
    owner_of = {factor.name: owner for factor, owner in zip(plan.factors, plan.owners, strict=True)}
    inverted = [[plan.factors[index] for index in plan.owned(rank)] for rank in range(spec.workers)]
    preconditioned = [list(device.factored)] * spec.workers
    sent = [sum(factor.inverse_elements(form) for factor in factors) for factors in inverted]
    if results == GRADIENTS:
        its = plan.layer_owners
        preconditioned = [[la for la in device.factored if its[la.name] == rank] for rank in range(spec.workers)]
        sent = [sum(layer.gradient_elements for layer in layers) for layers in preconditioned]
    return SecondOrderPlan(
        factors=tuple(
            FactorWork(at_s, work_s(name), owner_of[name] if variant.factors_to == "nobody" else None, before)
            for name, (at_s, before) in order.items()
        ),
        groups=tuple(_groups(plan, list(order), to_owner=variant.factors_to == "owner")),
        is_pipelined=variant.pipelined,
        traces=len(plan.factors) if settings.averages_traces else 0,
        inverting_s=tuple(sum(work_s(inverting(factor)) for factor in factors) for factors in inverted),
        inverting_everyones_s=sum(work_s(inverting(plan.factors[index])) for index in plan.everyones),
        preconditioning_s=tuple(sum(work_s(preconditioning(la.name)) for la in layers) for layers in preconditioned),
        results=tuple(sent),
        sends_gradients=results == GRADIENTS,
        chunk_bytes=scaled_chunk_bytes(spec.scale),
    )


def _work_s(device: Profile) -> Callable[[str], float]:
    return {piece.name: piece.seconds for piece in device.work}.__getitem__


def _positions(device: Profile, ends: Sequence[int]) -> Iterator[tuple[str, tuple[float, int]]]:
    """Factors as the pass reaches them: each before its layer, with seconds and complete buckets until then."""
    factored = {layer.name for layer in device.factored}
    forward_s = 0.0
    for layer in device.layers:
        if layer.name in factored:
            yield f"{layer.name}.a", (device.other_s + min(forward_s, device.forward_s), 0)
        forward_s += layer.forward_s
    seen, backward_s = 0, 0.0
    for layer in reversed(device.layers):
        if layer.name in factored:
            at_s = device.other_s + device.forward_s + min(backward_s, device.backward_s)
            yield f"{layer.name}.g", (at_s, sum(end <= seen for end in ends))
        seen += layer.parameters
        backward_s += layer.backward_s


def _groups(plan: Plan, order: Sequence[str], *, to_owner: bool) -> Iterator[Group]:
    place = {name: number for number, name in enumerate(order)}
    lasts = (max(place[plan.factors[index].name] for index in group) for group in plan.groups)
    for group, last in zip(plan.groups, itertools.accumulate(lasts, max), strict=True):
        elements = sum(plan.factors[index].elements for index in group)
        yield Group(elements, plan.owners[group[0]] if to_owner else None, last)


def _faults(spec: RunSpec, device: Profile) -> Iterator[str]:
    params, name = spec.strategy.params, f"strategy={spec.strategy.name}"
    profile = f"the profile of {device.workload}"
    for key in ("factor_every", "inverse_every", "accumulate"):
        if params.get(key, 1) != 1:
            asked = f"{name} strategy.{key}={params[key]}"
            yield f"{asked}: only steps that take and invert all factors, of one batch, are simulated; use 1"
    if params.get("compress", "gradients") != "gradients":
        yield f"{name} strategy.compress={params['compress']}: only gradients are simulated compressed; use gradients"
    if not device.factored:
        yield f"{name}: {profile} says nothing of factors; measure it with this strategy"
    known, layers = {piece.name for piece in device.work}, {layer.name for layer in device.layers}
    if lacking := [work for layer in device.factored for work in _work(layer) if work not in known]:
        said = f"does not say how long {len(lacking)} pieces of work take (the first is {lacking[0]})"
        yield f"{name}: {profile} {said}; measure it with this strategy"
    if strange := [layer.name for layer in device.factored if layer.name not in layers]:
        yield f"{name}: {strange[0]} has factors, but is no layer of {profile}; measure it again"


def _work(layer: FactoredLayer) -> Iterator[str]:
    """All that is done of a layer."""
    for factor in in_order([layer]):
        yield factor.name
        yield inverting(factor)
    yield preconditioning(layer.name)
