"""Answer to a worker that has said hello."""

from __future__ import annotations

from typing import Any

from testbed.core.record.telemetry import RENDEZVOUS_IN_NODE, STORE_IN_NODE, Welcome
from testbed.core.spec.run_spec import RunSpec
from testbed.orchestrator.config.programs import MASTER_PORT
from testbed.orchestrator.emulation.links.network import WORKER_INTERFACE


def welcome(
    spec: RunSpec, node: str, master_address: str, profile: dict[str, Any] | None, accelerators: int, *, is_back: bool
) -> Welcome:
    """Return the welcome of a node's worker.

    Args:
        master_address: Address of rank 0's node.
        profile: Times of the emulated device; None where none are emulated.
        accelerators: Number of devices that ranks share.
        is_back: True if an event has started the node again.
    """
    nodes = [one.name for one in spec.topology.nodes]
    return Welcome(
        spec={**spec.to_json(), "events": []},  # a trace has thousands; workers need none
        rank=nodes.index(node),
        world_size=len(nodes),
        interface=WORKER_INTERFACE,
        master_address=master_address,
        master_port=MASTER_PORT,
        rendezvous=RENDEZVOUS_IN_NODE,
        folder=STORE_IN_NODE,
        profile=profile,
        accelerators=accelerators,
        is_back=is_back,
    )
