"""The common keys of a run: their kinds, and how a value that does not fit is reported."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from testbed.core.spec.topology import MAX_WORKERS, Topology
from testbed.core.units import parse_size_bytes
from testbed.orchestrator.config.grammar.overrides import unknown

AUTO, GUESS = "auto", "guess"
"""Words for a `dilation` that is chosen, and tried before the run, or not."""


@dataclass(frozen=True)
class Setting:
    """Kind of a key's value, `words` and null apart.

    `kind` is "whole", "number", "text", "list" (itself or a file's path) or "sizes" (one, or several by name).
    """

    kind: str
    optional: bool = False
    words: tuple[str, ...] = ()

    def read(self, value: Any) -> Any:
        """The value as its kind.

        Raises:
            ValueError: it is of another kind.
        """
        if value is None and self.optional:
            return None
        if value in self.words:
            return value
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if self.kind == "text":
            return str(value)
        if self.kind == "sizes":
            if not is_number and not isinstance(value, str | dict):
                raise ValueError("must be a size such as 512 MB, or sizes by node or region")
            return value
        if self.kind == "list":
            if not isinstance(value, str | list):
                raise ValueError("must be a path or a list")
            return value
        if self.kind == "whole":
            if not is_number or int(value) != value:
                raise ValueError("must be a whole number")
            return int(value)
        if not is_number:
            raise ValueError(" or ".join(["must be a number", *self.words]))
        return float(value)


SETTINGS: dict[str, Setting] = {
    "workers": Setting("whole"),
    "steps": Setting("whole", optional=True),
    "epochs": Setting("number", optional=True),
    "batch_size": Setting("whole", optional=True),
    "evaluate_every": Setting("whole", optional=True),
    "target": Setting("number", optional=True),
    "start_from": Setting("text", optional=True),
    "checkpoint": Setting("text"),
    "seed": Setting("whole"),
    "dilation": Setting("number", words=(AUTO, GUESS)),
    "runtime": Setting("text"),
    "accelerator": Setting("text"),
    "shaper": Setting("text"),
    "tcp": Setting("text"),
    "connections": Setting("whole", optional=True),
    "capture": Setting("text"),
    "memory_limit": Setting("sizes", optional=True),
    "events": Setting("list", optional=True),
    "background": Setting("list", optional=True),
    "timeout_s": Setting("number"),
    "max_wall_s": Setting("number", optional=True),
    "metrics_port": Setting("whole"),
}

RUN_DEFAULTS = ("steps", "epochs", "batch_size", "evaluate_every")
"""Keys that a workload's `run:` may recommend."""

MOST = {
    "steps": 10**9,
    "epochs": 10**6,
    "batch_size": 10**6,
    "evaluate_every": 10**9,
    "timeout_s": 10**6,
    "max_wall_s": 10**7,
}
"""Largest counts and times in seconds; no run of any use has more, and a slip of the finger soon has."""


def read_settings(values: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """The values that fit, by key, and a fault for each that does not."""
    settings: dict[str, Any] = {}
    faults: list[str] = []
    for key, setting in SETTINGS.items():
        value = values.get(key)
        try:
            settings[key] = setting.read(value)
            _check_range(key, settings[key])
        except ValueError as error:
            settings.pop(key, None)
            faults.append(f"{key}={value if value is not None else 'null'}: {error}")
    return settings, faults


def _check_range(key: str, value: Any) -> None:
    """Only what `RunSpec` does not check itself."""
    if key == "workers" and not 1 <= value <= MAX_WORKERS:
        raise ValueError(f"must be from 1 to {MAX_WORKERS}")
    if key in MOST and value is not None and value > MOST[key]:
        raise ValueError(f"must be at most {MOST[key]:,}".replace(",", " "))


def with_run_defaults(settings: Mapping[str, Any], recommended: Mapping[str, Any]) -> dict[str, Any]:
    """Fill what the user left open with what the workload recommends; `steps` and `epochs` exclude each other."""
    filled = dict(settings)
    length_given = filled.get("steps") is not None or filled.get("epochs") is not None
    for key in RUN_DEFAULTS:
        if key in ("steps", "epochs") and length_given:
            continue
        if filled.get(key) is None:
            filled[key] = recommended.get(key)
    return filled


# The key `memory_limit`: from what a user writes to the bytes of each node's container.

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
