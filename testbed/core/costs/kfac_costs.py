"""When K-FAC's factors are there, and what moving and inverting them costs: what a plan goes by.

One implementation for runs and for their simulation.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence

from testbed.core.costs.collective import CHAIN
from testbed.core.costs.kfac_plan import in_order
from testbed.core.costs.kfac_variants import GRADIENTS, VARIANTS, Costs, Plan, Settings, make_plan
from testbed.core.costs.run_costs import all_reduce_cost, chain_cost
from testbed.core.device.factored_layer import CHOLESKY, EIGEN, ELEMENT_BYTES, Factor, FactoredLayer
from testbed.core.device.profile import Collective, LayerTimes, Profile
from testbed.core.spec.run_spec import RunSpec
from testbed.core.spec.scale import scaled_size_bytes

UNMEASURED_SECOND_CUBIC = {CHOLESKY: 2.6e-11, EIGEN: 1.2e-10}
"""Of an inverse by one core, where no device was calibrated. Measured once on an AMD EPYC: Cholesky's factorisation and
the inverse 0.7 ms at 256 and 28 ms at 1024, eigenvectors four to five times as long."""
WorkSeconds = Callable[[str], float | None]
"""Of a piece of work, by its name; None: not known."""


def inverting(factor: Factor) -> str:
    """The name of that work."""
    return f"inverse of {factor.name}"


def preconditioning(layer: str) -> str:
    return f"preconditioning of {layer}"


def with_readiness(
    factors: Sequence[Factor], layers: Sequence[LayerTimes], work_s: WorkSeconds, parts: int = 1
) -> list[Factor]:
    """Each with the seconds from the factor before it.

    Args:
        layers: of the whole model, in order; none where their times are not known.
        parts: micro-batches of a step, of which the last counts.
    """
    ready_s = dict(_ready(factors, layers, work_s, parts))
    found, before_s = [], 0.0
    for factor in factors:
        # a layer may be registered before one that forward calls earlier; what is there waits for its turn
        now_s = max(before_s, ready_s.get(factor.name, 0.0))
        found.append(dataclasses.replace(factor, after_s=now_s - before_s))
        before_s = now_s
    return found


def costs_of(spec: RunSpec, settings: Settings, factors: Sequence[Factor], work_s: WorkSeconds) -> Costs:
    """Of factors and inverses that are sent as they are, uncompressed."""
    total_bytes = ELEMENT_BYTES * sum(factor.elements for factor in factors)
    chain, second_cubic = chain_cost(spec, total_bytes), UNMEASURED_SECOND_CUBIC[settings.form]

    def invert_s(factor: Factor) -> float:
        known_s = work_s(inverting(factor))
        return second_cubic * factor.dimension**3 if known_s is None else known_s

    to_owners = VARIANTS[settings.variant].factors_to == "owner"
    return Costs(
        invert_s,
        lambda factor: chain.of(ELEMENT_BYTES * factor.inverse_elements(settings.form)),
        chain if to_owners else all_reduce_cost(spec, settings.collective, total_bytes, 1.0),
    )


def plan_for(
    spec: RunSpec,
    settings: Settings,
    layers: Sequence[FactoredLayer],
    device: Profile | None,
) -> Plan:
    """Who inverts which factor of `layers`, and which travel together.

    Args:
        device: how long layers and work take; None: not known, so that all factors are there at once.
    """
    seconds = {} if device is None else {piece.name: piece.seconds for piece in device.work}
    times = () if device is None else device.layers
    factors = with_readiness(in_order(layers), times, seconds.get, settings.micro_batches)
    costs = costs_of(spec, settings, factors, seconds.get)
    scaled = dataclasses.replace(settings, group_bytes=scaled_size_bytes(settings.group_bytes, spec.scale))
    return make_plan(scaled, factors, len(spec.topology.nodes), costs)


def planned(spec: RunSpec, cpu: Profile, device: Profile) -> tuple[Profile, Profile]:
    """Both profiles with each worker's mean share of the work, and the collectives beside gradients', as of the plan
    that `device` makes for `spec`; as they are where there are no factors."""
    if not cpu.factored:
        return cpu, device
    settings = Settings.of(spec.strategy.params)
    plan = plan_for(spec, settings, cpu.factored, device)
    shares = _shares(settings, plan, len(spec.topology.nodes))
    beside = (*cpu.collectives, *_collectives(settings, plan, cpu.factored, len(spec.topology.nodes)))
    work_s = sum(shares[piece.name] * piece.seconds for piece in cpu.work)
    cpu_step_s = cpu.cpu_step_s - cpu.work_step_s + work_s

    def shared(profile: Profile) -> Profile:
        work = tuple(dataclasses.replace(piece, share=shares[piece.name]) for piece in profile.work)
        return dataclasses.replace(profile, work=work, collectives=beside, cpu_step_s=cpu_step_s)

    return shared(cpu), shared(device)


def _shares(settings: Settings, plan: Plan, workers: int) -> dict[str, float]:
    """By name of the work: how often a worker does it in a step, on average over workers and steps."""
    shares = {}
    for factor, owner in zip(plan.factors, plan.owners, strict=True):
        part = 1 if owner is None else 1 / workers
        stays = VARIANTS[settings.variant].factors_to == "nobody"
        shares[factor.name] = (part if stays else 1) / settings.factor_every
        shares[inverting(factor)] = part / settings.inverse_every
        shares[preconditioning(factor.layer)] = 1 / workers if settings.results == GRADIENTS else 1
    return shares


def _collectives(settings: Settings, plan: Plan, layers: Sequence[FactoredLayer], workers: int) -> Iterator[Collective]:
    """Of a step in which all of it is due."""
    to_owners = VARIANTS[settings.variant].factors_to == "owner"
    for group in plan.groups:
        size_bytes = ELEMENT_BYTES * sum(plan.factors[index].elements for index in group)
        yield Collective(kind=CHAIN if to_owners else "all_reduce", size_bytes=size_bytes)
    for rank in range(workers):
        if settings.results == GRADIENTS:
            sent = sum(layer.gradient_elements for layer in layers if plan.layer_owners[layer.name] == rank)
        else:
            sent = sum(plan.factors[index].inverse_elements(settings.form) for index in plan.owned(rank))
        if sent:
            yield Collective(kind=CHAIN, size_bytes=ELEMENT_BYTES * sent)


def _ready(
    factors: Sequence[Factor], layers: Sequence[LayerTimes], work_s: WorkSeconds, parts: int
) -> Iterator[tuple[str, float]]:
    """Seconds from the beginning of the pass to the end of computing each, by name."""
    wanted, now_s = {factor.name for factor in factors}, 0.0
    for layer in layers:
        if (name := f"{layer.name}.a") in wanted:
            now_s += (work_s(name) or 0.0) / parts
            yield name, now_s
        now_s += layer.forward_s / parts
    for layer in reversed(layers):
        if (name := f"{layer.name}.g") in wanted:
            now_s += (work_s(name) or 0.0) / parts
            yield name, now_s
        now_s += layer.backward_s / parts
