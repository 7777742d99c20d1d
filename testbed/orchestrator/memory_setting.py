"""The key `memory_limit`: from what a user writes to the bytes of each node's container.

memory_limit='512 MB'                              of every node
memory_limit={site-1: 256 MB, others: 1 GB}        by node or region; who is not named has the machine's share
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from testbed.core.topology import Topology
from testbed.core.units import parse_size_bytes
from testbed.orchestrator.overrides import unknown

OTHERS = "others"
"""All nodes that are not named, nor their region."""


def read_limits(value: Any, topology: Topology | None) -> tuple[dict[str, int], list[str]]:
    """Bytes by node, and what is wrong. A node's own limit goes before its region's, and null is none.

    Args:
        value: null: no node has one.
        topology: None: it is not known, so only what is written is looked at.
    """
    asked = value if isinstance(value, Mapping) else {} if value is None else {OTHERS: value}
    limits: dict[str, int | None] = {}
    faults = []
    for name, size in asked.items():
        try:
            limits[str(name)] = None if size is None else parse_size_bytes(size)
        except ValueError as error:
            faults.append(f"memory_limit: {name}: {error}" if isinstance(value, Mapping) else f"memory_limit: {error}")
    if topology is None:
        return {}, faults
    faults += _unknown(asked, topology)
    by_node = {node.name: _first(limits, node.name, node.region, OTHERS) for node in topology.nodes}
    return {node: limit for node, limit in by_node.items() if limit is not None}, faults


def _unknown(asked: Mapping[Any, Any], topology: Topology) -> Iterator[str]:
    known = [*(node.name for node in topology.nodes), *topology.regions, OTHERS]
    for name in map(str, asked):
        if name not in known:
            yield unknown(f"memory_limit: {name}", name, known, "node or region")


def _first(limits: Mapping[str, int | None], *names: str) -> int | None:
    return next((limits[name] for name in names if name in limits), None)
