"""Plug-ins as earlier versions knew them: targets read by any name they have had, hashed by the first one.

A target is "package.module.Class", as specs, YAML files and users name a plug-in. When a module whose classes users
name moves, it gets one row in `MODULES`. Specs that hold the earlier name are then read and run, and the hash of a
recorded run stays what it was.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from typing import Any

KEY = "_target_"
"""The key that makes a dictionary among parameters a plug-in of its own."""
PACKAGES = ("testbed", "compressors", "topologies", "experiments", "dashboards", "longhaul")
"""Packages of this repository, in which its plug-ins lie; no folder of a user stands in for them."""

_FEDERATED = "testbed.worker.methods.federated"
_BOUNDS = "testbed.worker.methods.parameter_server.bounds"
MODULES = {
    "testbed.core.bound_baselines": f"{_BOUNDS}.baselines",
    "testbed.core.bound_schedules": f"{_BOUNDS}.adaptive",
    "testbed.core.break_even": f"{_BOUNDS}.break_even",
    "testbed.core.federated.availability": f"{_FEDERATED}.clients.availability",
    "testbed.core.federated.oort": f"{_FEDERATED}.clients.oort",
    "testbed.core.federated.partitions": "testbed.worker.data.partitions",
    "testbed.worker.federated.attacks": f"{_FEDERATED}.aggregation.attacks",
    "testbed.worker.federated.robust": f"{_FEDERATED}.aggregation.robust",
    "testbed.worker.federated.secure": f"{_FEDERATED}.secure_aggregation.secure",
}
"""Present names by the names under which they were first published. A module that moves again keeps its row, with the
new name in it."""
SCRIPT = "longhaul.program.Script"
"""Target of a user's script. Its arguments are texts now; those spelt as a number were numbers."""
_FIRST = {now: first for first, now in MODULES.items()}
ADDED: dict[str, dict[str, Any]] = {
    "compressors.powersgd.PowerSGD": {"start_step": 0},
    "testbed.worker.strategies.ddp.DDP": {"broadcast_buffers": False},
    **{
        f"testbed.core.device.{name}": {"codecs": "cpu", "host_s": None}
        for name in ("Measured", "Paced", "Profiled", "Published")
    },
}
"""Parameters that a class was given after runs with it were recorded, each with the value at which it does what it did
before. A hash leaves out a parameter that has this value, so that those runs keep theirs."""


def present(target: str) -> str:
    """Return the target under its present name; one that never moved, as a user's own, is returned as it is."""
    return _renamed(target, MODULES)


def first_published(target: str) -> str:
    """Return the target under the name it was first published by."""
    return _renamed(target, _FIRST)


def as_recorded(target: str, params: dict[str, Any]) -> dict[str, Any]:
    """Return the parameters of a plug-in as a hash has them: first published targets, without what was added since."""
    added = ADDED.get(present(target), {})
    known = {key: value for key, value in params.items() if key not in added or value != added[key]}
    if target == SCRIPT and isinstance(known.get("args"), list):
        known["args"] = [_as_number(argument) for argument in known["args"]]
    found: dict[str, Any] = in_params(known, first_published)
    return found


def _as_number(argument: Any) -> Any:
    """Return an argument as the number that is spelt just so, if there is one."""
    for kind in (int, float):
        try:
            if str(kind(argument)) == argument and math.isfinite(number := kind(argument)):
                return number
        except (TypeError, ValueError, OverflowError):
            continue
    return argument


def in_params(params: Any, rename: Callable[[str], str]) -> Any:
    """Return a copy of parameters in which `rename` was applied to every target, however deep it lies."""
    if isinstance(params, dict):
        return {
            key: rename(value) if key == KEY and isinstance(value, str) else in_params(value, rename)
            for key, value in params.items()
        }
    if type(params) in (list, tuple):
        return type(params)(in_params(value, rename) for value in params)
    return params


def in_part_text(text: str) -> str:
    """Return what a profile says of a part, a target and its parameters as JSON, with present names.

    Text of another form, as in a profile that someone wrote, is returned as it is.
    """
    target, _, told = text.partition(" ")
    try:
        params = json.loads(told)
    except ValueError:
        return text
    found = in_params(params, present)
    return f"{present(target)} {told if found == params else json.dumps(found, sort_keys=True)}"


def _renamed(target: str, modules: Mapping[str, str]) -> str:
    """The longest prefix counts, in whole segments: `a.b` is no prefix of `a.bc.C`."""
    segments = target.split(".")
    for end in range(len(segments), 0, -1):
        if (found := modules.get(".".join(segments[:end]))) is not None:
            return ".".join([found, *segments[end:]])
    return target
