"""Refusals of what a run asks of sending, beside its strategy: connections to each peer, and a host's time."""

from __future__ import annotations

from collections.abc import Iterator

from testbed.core.costs.collective import GLOO_RING, NCCL_RING, SUMS_ALONE
from testbed.core.costs.sockets import NCCL
from testbed.core.device.host_costs import NO_COSTS, HostCosts
from testbed.core.spec.run_spec import RunSpec
from testbed.worker.interfaces.strategy import Strategy


def sending_faults(spec: RunSpec, strategy: Strategy) -> Iterator[str]:
    """Yield why messages cannot be cut among the connections that a run asks for, or its host cannot take its time."""
    name, collective = spec.strategy.name, str(spec.strategy.params.get("collective", "gloo"))
    host, asked = HostCosts.of(spec.device), f"connections={spec.connections}"
    if spec.connections is not None and not strategy.takes_connections:
        yield f"{asked}: strategy={name} does not say that it sends by comm alone (sends_by_comm); leave it out"
    elif spec.connections is not None and collective == NCCL_RING and spec.connections % NCCL.channels:
        yield f"{asked}: strategy.collective={NCCL_RING} shares them among {NCCL.channels} channels; use an even number"
    elif (spec.connections or 1) > 1 and collective == GLOO_RING:
        yield f"{asked}: strategy.collective={GLOO_RING} sends over one, as gloo does; use collective=gloo"
    if host.collective_s and not strategy.starts_collectives(spec.workers):
        why = "known to start collectives in its steps, which could wait for it; leave it out"
        yield f"device.host_s.collective: strategy={name}, as it is asked for, is not {why}"
    if host.segment_s and collective not in SUMS_ALONE:
        yield (
            f"device.host_s.segment: strategy={name} does not pass on segments that could wait for it; use ddp, lamb or"
            f" diloco with strategy.collective={' or '.join(SUMS_ALONE)}"
        )


def accelerator_faults(spec: RunSpec, *, stages: bool) -> Iterator[str]:
    """Yield what a run on accelerators asks of sending that happens elsewhere there.

    Args:
        stages: True if what leaves them is copied to the host's memory, from which it is sent as any other.
    """
    if spec.connections is not None and not stages:
        yield f"connections={spec.connections}: NCCL has connections of its own; leave it out"
    if HostCosts.of(spec.device) != NO_COSTS:
        why = "was not tried with copies to the host's memory" if stages else "NCCL sends, which nothing makes wait"
        yield f"device.host_s: {why}; leave it out"


def own_messages_faults(spec: RunSpec) -> Iterator[str]:
    """Yield why a strategy that can send from accelerators cannot do so by the collective that a run asks for."""
    collective = str(spec.strategy.params.get("collective", "gloo"))
    if collective != "gloo":
        yield (
            f"strategy.collective={collective}: sends tagged messages from rank to rank, which NCCL has not;"
            " use strategy.collective=gloo, torch's own collectives, which are NCCL's there"
        )
