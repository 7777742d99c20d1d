"""From a topology's configuration (`_target_` and parameters) to the `Topology` it builds."""

from __future__ import annotations

import importlib
import inspect
import re
import typing
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml  # type: ignore[import-untyped]

from testbed.core.errors import InputError, raise_input_faults
from testbed.core.spec.topology import Topology
from testbed.orchestrator.config.grammar.overrides import first_line, unknown
from testbed.orchestrator.emulation.kernel import tc
from testbed.orchestrator.emulation.links.addresses import AddressPlan

TARGET = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)+")
_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9-]{0,38}[A-Za-z0-9])?")
"""A host name's rule, since regions and nodes name hosts and log files."""
_OWN = ("name", "workers")
"""Parameters of `build` that are not the user's to give under `topo.`."""
_NAMES = ("regions", "region", "centre")
"""Parameters that are no numbers, so that a source still holds when they are changed."""


def build_topology(
    name: str,
    target: str,
    params: Mapping[str, Any],
    workers: int,
    given: Collection[str] = (),
    *,
    emulated: bool = True,
) -> Topology:
    """Call the build function `target`.

    Args:
        params: of the function, `name` and `workers` apart.
        given: keys of `params` that come from the user, whose numbers then have no other source.
        emulated: whether a network is to be built of it; otherwise it may be larger than one can be.

    Raises:
        InputError: with every fault at once.
    """
    build = import_target(target)
    accepted = _accepted(build)
    wrong = dict(_parameter_faults(accepted, params))
    values = {key: value for key, value in params.items() if key not in wrong}
    if "source" in accepted.hints and "source" not in given:
        values |= _source(build, params, given)
    own = {key: value for key, value in (("name", name), ("workers", workers)) if key in accepted.hints}
    try:
        topology = build(**own, **values) if accepted.required <= {*own, *values} else None
    except InputError as error:
        raise InputError(*wrong.values(), *error.faults) from None
    except Exception as error:  # a user's own function may raise anything, and a traceback would hide the key at fault
        fault = f"topo={name}: {target} raised {type(error).__name__}: {error}"
        raise InputError(*wrong.values(), *([] if wrong else [fault])) from error
    raise_input_faults(wrong.values())
    if not isinstance(topology, Topology):
        raise InputError(f"topo={name}: {target} returned {type(topology).__name__}; it must return a Topology")
    raise_input_faults(_name_faults(topology))
    if emulated:
        AddressPlan(topology)  # refuses more regions and links than there are addresses for
        raise_input_faults(tc.queue_faults(topology))
    return topology


def import_target(target: str) -> Callable[..., Any]:
    """The function `target` names.

    Raises:
        InputError: it cannot be imported or called.
    """
    asked = f"topo._target_={target}"
    if not TARGET.fullmatch(target):
        raise InputError(f"{asked}: not of the form package.module.function")
    module_name, _, attribute = target.rpartition(".")
    try:
        found = getattr(importlib.import_module(module_name), attribute)
    except Exception as error:  # importing runs a user's code
        raise InputError(f"{asked}: cannot be imported: {type(error).__name__}: {error}") from error
    if not callable(found):
        raise InputError(f"{asked}: is {type(found).__name__}, not a function")
    function: Callable[..., Any] = found
    return function


@dataclass(frozen=True)
class _Accepted:
    """What a build function takes."""

    hints: dict[str, Any]
    """The type of each parameter, those of a TypedDict behind `**` among them; None where it has none."""
    required: frozenset[str]
    open_ended: bool
    """Whether it takes any other parameter too."""


def _accepted(build: Callable[..., Any]) -> _Accepted:
    types = typing.get_type_hints(build) if inspect.isfunction(build) else {}
    hints: dict[str, Any] = {}
    required, open_ended = set(), False
    for key, parameter in inspect.signature(build).parameters.items():
        if parameter.kind is inspect.Parameter.VAR_KEYWORD:
            several = next((one for one in typing.get_args(types.get(key)) if typing.is_typeddict(one)), None)
            hints |= typing.get_type_hints(several) if several else {}
            open_ended = several is None
        else:
            hints[key] = types.get(key)
            if parameter.default is inspect.Parameter.empty:
                required.add(key)
    return _Accepted(hints, frozenset(required), open_ended)


def _parameter_faults(accepted: _Accepted, params: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """By key."""
    known = [key for key in accepted.hints if key not in _OWN]
    for key, value in params.items():
        if key in _OWN:
            instead = f"workers={value}" if key == "workers" else "another topo"
            yield key, f"topo.{key}={value}: give {instead} instead"
        elif key not in accepted.hints:
            if not accepted.open_ended:
                yield key, unknown(f"topo.{key}={value}", key, known, "parameter")
        elif (hint := accepted.hints[key]) is not None and not _fits(value, hint):
            yield key, f"topo.{key}={value}: must be {_spoken(hint)}"
    for key in known:
        if key in accepted.required and key not in params:
            yield key, f"topo.{key}: must be given"


def _fits(value: Any, hint: Any) -> bool:
    """Whether the outer type fits. A bare number passes for text, so that the unit's own message is given."""
    options = typing.get_args(hint) if typing.get_origin(hint) not in (tuple, list, dict) else ()
    if options:
        return any(_fits(value, option) for option in options)
    origin = typing.get_origin(hint) or hint
    if origin in (tuple, list):
        return isinstance(value, list | tuple)
    if origin is str:
        return isinstance(value, str | int | float) and not isinstance(value, bool)
    if origin is float:
        return isinstance(value, int | float) and not isinstance(value, bool)
    if origin is int:
        return isinstance(value, int) and not isinstance(value, bool)
    return not isinstance(origin, type) or isinstance(value, origin)


def _spoken(hint: Any) -> str:
    text = str(hint)
    if "list[" in text or "tuple[" in text:
        return "a list, as in [a,b]"
    return {"str": "text", "int": "a whole number", "float": "a number"}.get(getattr(hint, "__name__", ""), text)


def _source(build: Callable[..., Any], params: Mapping[str, Any], given: Collection[str]) -> dict[str, str]:
    """The configuration's source, which no longer holds for what the user changed."""
    changed = [f"{key}={params[key]}" for key in sorted(given) if key in params and key not in _NAMES]
    rest = params.get("source", inspect.signature(build).parameters["source"].default)
    if not changed or not rest:
        return {}
    return {"source": f"assumed: given by the user: {', '.join(changed)}; the rest: {rest}"}


def _name_faults(topology: Topology) -> Iterator[str]:
    # a node is mostly named after its region, and one line for both is enough
    nodes = (node.name for node in topology.nodes if _NAME.fullmatch(node.region))
    for name in (*topology.regions, *nodes):
        if not _NAME.fullmatch(name):
            yield f"topology {topology.name}: the name {name!r} must be letters, digits and inner hyphens, 40 at most"
    for name, count in Counter(link.name for link in topology.links).items():
        if count > 1:
            yield f"topology {topology.name}: {count} links are called {name!r}; give each a name of its own"


# A user's own topology, given by the path of a YAML file: `topo=./mynet.yaml`.

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
