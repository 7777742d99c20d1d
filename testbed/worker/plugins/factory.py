"""Parts of a spec, from their names to objects, with every fault at once."""

from __future__ import annotations

import importlib
import inspect
import re
from typing import Any

from testbed.core.declaration import declaration
from testbed.core.errors import InputError
from testbed.core.spec.run_spec import Part

_VALUE_FAULT = re.compile(r"^\w[\w.\[\]]*=")


def build(kind: str, part: Part, base: type) -> Any:
    """Return the part's object.

    Args:
        kind: the key under which the user gave it: workload, strategy, compressor or device, or a parameter of one.
        base: the class it must derive from.

    Raises:
        InputError: the class cannot be had, a parameter is unknown, or a value is refused; all faults at once.
    """
    target = _load(kind, part, base)
    known = [p for p in inspect.signature(target).parameters.values() if p.kind is not inspect.Parameter.VAR_KEYWORD]
    names = [p.name for p in known]
    faults = [
        f"{kind}.{name}={part.params[name]}: unknown; {part.name} knows: {', '.join(names) or 'no parameters'}"
        for name in part.params
        if name not in names
    ]
    missing = [p.name for p in known if p.default is inspect.Parameter.empty and p.name not in part.params]
    faults += [f"{kind}.{name}: {part.name} needs a value" for name in missing]
    params: dict[str, Any] = {}
    for name, value in part.params.items():
        try:
            params[name] = _nested(f"{kind}.{name}", value)
        except InputError as error:
            faults += error.faults
    built = None
    if not missing and params.keys() == part.params.keys():
        try:
            built = target(**{name: value for name, value in params.items() if name in names})
        except (ValueError, TypeError) as error:
            faults += [prefixed(kind, line) for line in str(error).splitlines()]
    else:  # what can be said without the constructor
        declared = [one for one in declaration(target) if one.name in params]
        faults += [prefixed(kind, line) for one in declared for line in one.faults(params[one.name])]
    if faults:
        raise InputError(*faults)
    return built


def _nested(key: str, value: Any) -> Any:
    """A parameter that names a class is built too, as the inner compressor of a wrapper is, or each of a list.

    Raises:
        InputError: with the faults of all that cannot be built.
    """
    if isinstance(value, dict) and "_target_" in value:
        target = str(value["_target_"])
        params = {name: inner for name, inner in value.items() if name != "_target_"}
        return build(key, Part(target.rpartition(".")[2], target, params), object)
    if not isinstance(value, dict | list):
        return value
    keyed = value.items() if isinstance(value, dict) else enumerate(value)
    built: dict[Any, Any] = {}
    faults: list[str] = []
    for name, inner in keyed:
        try:
            built[name] = _nested(f"{key}.{name}" if isinstance(value, dict) else f"{key}[{name}]", inner)
        except InputError as error:
            faults += error.faults
    if faults:
        raise InputError(*faults)
    return built if isinstance(value, dict) else list(built.values())


def prefixed(kind: str, line: str) -> str:
    """A part's own fault, in the words of a user who gave the part under that key."""
    return f"{kind}.{line}" if _VALUE_FAULT.match(line) else f"{kind}: {line}"


def _load(kind: str, part: Part, base: type) -> Any:
    module, _, name = part.target.rpartition(".")
    try:
        target = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise InputError(f"{kind}={part.name}: cannot load {part.target!r}: {error}") from error
    except Exception as error:  # whatever a module does as it is imported
        said = f"{type(error).__name__}: {(str(error).splitlines() or [''])[0]}"
        raise InputError(f"{kind}={part.name}: cannot load {part.target!r}: {said}") from error
    if not (inspect.isclass(target) and issubclass(target, base)):
        raise InputError(f"{kind}={part.name}: {part.target} is not a {base.__name__}")
    return target
