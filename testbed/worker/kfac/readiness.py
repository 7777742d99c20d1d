"""When K-FAC's factors are there, and what moving and inverting them costs: what a plan goes by."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Sequence

from torch import nn

from testbed.core.auto_dilation import OWN_MESSAGE_CPU_S
from testbed.core.collective_costs import chain_seconds
from testbed.core.fusion import Cost
from testbed.core.kfac_plan import ELEMENT_BYTES, Factor, InverseCost
from testbed.core.kfac_variants import Costs
from testbed.core.spec import RunSpec
from testbed.worker.fusion import all_reduce_cost
from testbed.worker.layers import layer_names
from testbed.worker.times import ComputeTimes

UNMEASURED = InverseCost(0.0, 2.6e-11)
"""Where no device was calibrated: Cholesky's factorisation and the inverse by one core, 0.7 ms at 256 and 28 ms at
1024, measured once on an AMD EPYC."""


def with_readiness(factors: Sequence[Factor], model: nn.Module, times: ComputeTimes, parts: int) -> list[Factor]:
    """Each with the seconds from the factor before it: of the last of `parts` micro-batches."""
    ready_s = dict(_ready(factors, model, times, parts))
    found, before_s = [], 0.0
    for factor in factors:
        # a layer may be registered before one that forward calls earlier; what is there waits for its turn
        now_s = max(before_s, ready_s[factor.name])
        found.append(dataclasses.replace(factor, after_s=now_s - before_s))
        before_s = now_s
    return found


def costs_of(
    spec: RunSpec, times: ComputeTimes, collective: str, factors: Iterable[Factor], *, to_owners: bool, width: float
) -> Costs:
    """
    Args:
        collective: that carries sums to all.
        width: bytes that are sent for a byte of a factor.
    """
    total_bytes = ELEMENT_BYTES * sum(factor.elements for factor in factors)
    message_s = OWN_MESSAGE_CPU_S / spec.dilation

    def along_a_chain_s(size_bytes: float) -> float:
        return chain_seconds(size_bytes, spec.topology, message_s=message_s)

    def invert_s(factor: Factor) -> float:
        known_s = times.work_s(inverting(factor))
        return UNMEASURED.of(factor.dimension) if known_s is None else known_s

    if to_owners:
        reduction = Cost.fitted(lambda size: along_a_chain_s(width * size), total_bytes)
    else:
        reduction = all_reduce_cost(spec, collective, total_bytes, width)
    return Costs(invert_s, lambda elements: along_a_chain_s(ELEMENT_BYTES * elements), reduction)


def inverting(factor: Factor) -> str:
    """The name of that work."""
    return f"inverse of {factor.name}"


def preconditioning(layer: str) -> str:
    return f"preconditioning of {layer}"


def _ready(factors: Sequence[Factor], model: nn.Module, times: ComputeTimes, parts: int) -> Iterator[tuple[str, float]]:
    """Seconds from the beginning of the pass to the end of computing each, by name."""
    wanted, names, now_s = {factor.name for factor in factors}, layer_names(model), 0.0
    for name in names:
        if f"{name}.a" in wanted:
            now_s += (times.work_s(f"{name}.a") or 0.0) / parts
            yield f"{name}.a", now_s
        now_s += times.forward_of(name) / parts
    for name in reversed(names):
        if f"{name}.g" in wanted:
            now_s += (times.work_s(f"{name}.g") or 0.0) / parts
            yield f"{name}.g", now_s
        now_s += times.backward_of(model.get_submodule(name).parameters(recurse=False)) / parts
