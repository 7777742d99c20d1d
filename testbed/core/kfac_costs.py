"""When K-FAC's factors are there, and what moving and inverting them costs: what a plan goes by.

One implementation for runs and for their simulation.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence

from testbed.core.kfac_plan import ELEMENT_BYTES, Factor, InverseCost
from testbed.core.kfac_variants import VARIANTS, Costs
from testbed.core.message_costs import all_reduce_cost, chain_cost
from testbed.core.profile import LayerTimes
from testbed.core.spec import RunSpec

UNMEASURED = InverseCost(0.0, 2.6e-11)
"""Where no device was calibrated: Cholesky's factorisation and the inverse by one core, 0.7 ms at 256 and 28 ms at
1024, measured once on an AMD EPYC."""
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


def costs_of(
    spec: RunSpec, variant: str, collective: str, factors: Sequence[Factor], work_s: WorkSeconds, width: float = 1.0
) -> Costs:
    """
    Args:
        collective: that carries sums to all.
        width: bytes that are sent for a byte of a factor.
    """
    total_bytes = ELEMENT_BYTES * sum(factor.elements for factor in factors)
    broadcast = chain_cost(spec, total_bytes)

    def invert_s(factor: Factor) -> float:
        known_s = work_s(inverting(factor))
        return UNMEASURED.of(factor.dimension) if known_s is None else known_s

    return Costs(
        invert_s,
        lambda elements: broadcast.of(ELEMENT_BYTES * elements),
        chain_cost(spec, total_bytes, width)
        if VARIANTS[variant].factors_to == "owner"
        else all_reduce_cost(spec, collective, total_bytes, width),
    )


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
