"""A user's own topology, given by the path of a YAML file: `topo=./mynet.yaml`."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml  # type: ignore[import-untyped]

from testbed.core.errors import InputError
from testbed.orchestrator.overrides import first_line

DESCRIBED = "topologies.described.build"
"""Builds a file that names no `_target_` and lists regions and links instead."""

_STEM = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,21}")
"""It becomes part of a run id."""


def is_path(name: str) -> bool:
    """Whether a topology is asked for by its file."""
    return name.endswith((".yaml", ".yml"))


def read_topology_file(path: Path) -> dict[str, Any]:
    """What one of our own files would hold: `_target_`, its parameters, `run`.

    Raises:
        InputError: it cannot be read, is not a mapping, or cannot lend a run its name.
    """
    faults = []
    if not _STEM.fullmatch(path.stem):
        faults.append(f"topo={path}: {path.stem!r} names the topology: letters, digits, - and _, 22 at most; rename it")
    values: Any = {}
    try:
        values = yaml.safe_load(path.read_text())
    except OSError as error:
        faults.append(f"topo={path}: cannot be read: {error.strerror}")
    except UnicodeDecodeError:
        faults.append(f"topo={path}: is not text")
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = f", line {mark.line + 1}" if mark else ""
        faults.append(f"topo={path}{line}: is not YAML: {getattr(error, 'problem', None) or first_line(error)}")
    if not isinstance(values, dict):
        faults.append(f"topo={path}: must hold _target_ and its parameters, or regions and links")
    if faults:
        raise InputError(*faults)
    named: dict[str, Any] = {str(key): value for key, value in values.items()}
    if "_target_" not in named:
        named = {**_workers_of(named.get("regions")), **named, "_target_": DESCRIBED}
    return named


def _workers_of(regions: Any) -> dict[str, Any]:
    """Where a file lays down the workers of each region, their sum is the number of workers."""
    counts = list(regions.values()) if isinstance(regions, dict) else []
    total = sum(count for count in counts if isinstance(count, int) and count > 0)
    return {"run": {"workers": total}} if total else {}
