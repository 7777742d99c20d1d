"""From a topology's configuration (`_target_` and parameters) to the `Topology` it builds."""

from __future__ import annotations

import importlib
import inspect
import re
import typing
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

from testbed.core.errors import InputError
from testbed.core.topology import Topology
from testbed.orchestrator.overrides import unknown

TARGET = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)+")
_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9-]{0,38}[A-Za-z0-9])?")
"""A host name's rule, since regions and nodes name hosts and log files."""
_OWN = ("name", "workers")
"""Parameters of `build` that are not the user's to give under `topo.`."""


def build_topology(
    name: str, target: str, params: Mapping[str, Any], workers: int, given: Collection[str] = ()
) -> Topology:
    """Call the build function `target`.

    Args:
        params: of the function, `name` and `workers` apart.
        given: keys of `params` that come from the user, whose numbers then have no other source.

    Raises:
        InputError: with every fault at once.
    """
    build = import_target(target)
    accepted = inspect.signature(build).parameters
    faults = list(_parameter_faults(build, accepted, params))
    if faults:
        raise InputError(*faults)
    values = dict(params)
    if "source" in accepted and "source" not in given:
        values |= _source(build, params, given)
    own = {key: value for key, value in (("name", name), ("workers", workers)) if key in accepted}
    try:
        topology = build(**own, **values)
    except InputError:
        raise
    except Exception as error:  # a user's own function may raise anything, and a traceback would hide the key at fault
        raise InputError(f"topo={name}: {target} raised {type(error).__name__}: {error}") from error
    if not isinstance(topology, Topology):
        raise InputError(f"topo={name}: {target} returned {type(topology).__name__}; it must return a Topology")
    faults = list(_name_faults(topology))
    if faults:
        raise InputError(*faults)
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


def _parameter_faults(
    build: Callable[..., Any], accepted: Mapping[str, inspect.Parameter], params: Mapping[str, Any]
) -> Iterator[str]:
    open_ended = any(p.kind is inspect.Parameter.VAR_KEYWORD for p in accepted.values())
    known = [key for key in accepted if key not in _OWN and accepted[key].kind is not inspect.Parameter.VAR_KEYWORD]
    hints = typing.get_type_hints(build) if inspect.isfunction(build) else {}
    for key, value in params.items():
        if key in _OWN:
            yield f"topo.{key}={value}: give {'workers=' + str(value) if key == 'workers' else 'another topo'} instead"
        elif key not in accepted and not open_ended:
            yield unknown(f"topo.{key}={value}", key, known, "parameter")
        elif key in hints and not _fits(value, hints[key]):
            yield f"topo.{key}={value}: must be {_spoken(hints[key])}"
    for key in known:
        if accepted[key].default is inspect.Parameter.empty and key not in params:
            yield f"topo.{key}: must be given"


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
    changed = [f"{key}={params[key]}" for key in sorted(given) if key in params and key != "regions"]
    if not changed:
        return {}
    default = inspect.signature(build).parameters["source"].default
    rest = params.get("source", default)
    return {"source": f"assumed: given by the user: {', '.join(changed)}; the rest: {rest}"}


def _name_faults(topology: Topology) -> Iterator[str]:
    # a node is mostly named after its region, and one line for both is enough
    nodes = (node.name for node in topology.nodes if _NAME.fullmatch(node.region))
    for name in (*topology.regions, *nodes):
        if not _NAME.fullmatch(name):
            yield f"topology {topology.name}: the name {name!r} must be letters, digits and inner hyphens, 40 at most"
