"""Parts of a spec, from their names to objects, with every fault at once."""

from __future__ import annotations

import inspect
import re
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from testbed.core.declaration import Declared, declaration, declared_kinds
from testbed.core.errors import InputError, nearest
from testbed.core.spec.redirects import KEY, PACKAGES
from testbed.core.spec.run_spec import Part
from testbed.worker.plugins.modules import load

_VALUE_FAULT = re.compile(r"^\w[\w.\[\]]*=")


def build(kind: str, part: Part, base: type | tuple[type, ...]) -> Any:
    """Return the part's object.

    Every class that the part names is loaded first, and has to derive from the base class of its role. Until then none
    is called.

    Args:
        kind: the key under which the user gave it: workload, strategy, compressor or device, or a parameter of one.
        base: the class it must derive from, or several.

    Raises:
        InputError: the class cannot be had, a parameter is unknown, or a value is refused; all faults at once.
    """
    target = load_class(kind, part, base)
    if faults := list(_class_faults(kind, target, part)):
        raise InputError(*faults)
    return _called(kind, target, part)


def _called(kind: str, target: Callable[..., Any], part: Part) -> Any:
    known = [p for p in inspect.signature(target).parameters.values() if p.kind is not inspect.Parameter.VAR_KEYWORD]
    names = [p.name for p in known]
    faults = [_unknown(f"{kind}.{name}={part.params[name]}", name, part, names) for name in part.params]
    faults = [fault for name, fault in zip(part.params, faults, strict=True) if name not in names]
    missing = [p.name for p in known if p.default is inspect.Parameter.empty and p.name not in part.params]
    faults += [f"{kind}.{name}: {part.name} needs a value" for name in missing]
    params: dict[str, Any] = {}
    for name, value in part.params.items():
        try:
            params[name] = _nested(f"{kind}.{name}", value, part.folders)
        except InputError as error:
            faults += error.faults
    built = None
    if not missing and params.keys() == part.params.keys():
        try:
            built = target(**{name: value for name, value in params.items() if name in names})
        except (ValueError, TypeError) as error:
            faults += [f"{prefixed(kind, line)}{_place(error)}" for line in str(error).splitlines()]
    else:  # what can be said without the constructor
        declared = [one for one in declaration(target) if one.name in params]
        faults += [prefixed(kind, line) for one in declared for line in one.faults(params[one.name])]
    if faults:
        raise InputError(*faults)
    return built


def _place(error: Exception) -> str:
    """Return where a constructor called something in a wrong way, which is its own fault and not its parameters'."""
    frames = traceback.extract_tb(error.__traceback__)[1:]
    own = [frame for frame in frames if not frame.filename.endswith("core/declaration.py")]
    if not isinstance(error, TypeError) or not own:
        return ""
    return f" ({own[-1].filename}, line {own[-1].lineno}, in {own[-1].name})"


def _unknown(asked: str, name: str, part: Part, known: Sequence[str]) -> str:
    near = nearest(name, known)
    guess = f"did you mean {near}? " if near else ""
    return f"{asked}: unknown; {guess}{part.name} knows: {', '.join(known) or 'no parameters'}"


def _class_faults(kind: str, target: Any, part: Part) -> Iterator[str]:
    """Yield what is wrong with the classes that parameters name, however deep; loads them and calls none."""
    try:
        kinds = declared_kinds(inspect.unwrap(target.__init__))
    except TypeError as error:  # an annotation that cannot be read
        yield from (prefixed(kind, line) for line in str(error).splitlines())
        return
    for name, value in part.params.items():
        declared = kinds[name][0] if name in kinds else None
        bases = (Declared,) if declared is None or declared.bases is None else declared.bases
        for key, inner in _named_classes(f"{kind}.{name}", value, part.folders):
            if declared is not None and not bases:
                yield f"{key}.{KEY}={inner.target}: {name} takes no class; give {declared.type_text}"
                continue
            try:
                yield from _class_faults(key, load_class(key, inner, bases), inner)
            except InputError as error:
                yield from error.faults


def _named_classes(key: str, value: Any, folders: tuple[str, ...]) -> Iterator[tuple[str, Part]]:
    """Yield the outermost classes in a value, with their keys."""
    if isinstance(value, Mapping) and KEY in value:
        yield key, _part(value, folders)
    elif isinstance(value, Mapping):
        for name, inner in value.items():
            yield from _named_classes(f"{key}.{name}", inner, folders)
    elif isinstance(value, list | tuple):
        for place, inner in enumerate(value):
            yield from _named_classes(f"{key}[{place}]", inner, folders)


def _part(value: Mapping[str, Any], folders: tuple[str, ...]) -> Part:
    target = str(value[KEY])
    params = {name: inner for name, inner in value.items() if name != KEY}
    return Part(target.rpartition(".")[2], target, params, folders)


def _nested(key: str, value: Any, folders: tuple[str, ...]) -> Any:
    """A parameter that names a class is built too, as the inner compressor of a wrapper is, or each of a list.

    Its class was looked at before.

    Raises:
        InputError: with the faults of all that cannot be built.
    """
    if isinstance(value, dict) and KEY in value:
        part = _part(value, folders)
        return _called(key, load_class(key, part, object), part)
    if not isinstance(value, dict | list):
        return value
    keyed = value.items() if isinstance(value, dict) else enumerate(value)
    built: dict[Any, Any] = {}
    faults: list[str] = []
    for name, inner in keyed:
        try:
            built[name] = _nested(f"{key}.{name}" if isinstance(value, dict) else f"{key}[{name}]", inner, folders)
        except InputError as error:
            faults += error.faults
    if faults:
        raise InputError(*faults)
    return built if isinstance(value, dict) else list(built.values())


def prefixed(kind: str, line: str) -> str:
    """A part's own fault, in the words of a user who gave the part under that key."""
    return f"{kind}.{line}" if _VALUE_FAULT.match(line) else f"{kind}: {line}"


def load_class(kind: str, part: Part, base: type | tuple[type, ...]) -> Any:
    """Return the class of a part.

    Raises:
        InputError: It cannot be loaded, or does not derive from `base`.
    """
    module, _, name = part.target.rpartition(".")
    try:
        target = getattr(load(module, part.folders), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise InputError(f"{kind}={part.name}: cannot load {part.target!r}: {error}{_where(part, error)}") from error
    except (Exception, SystemExit) as error:  # whatever a module does as it is imported
        said = f"{type(error).__name__}: {(str(error).splitlines() or [''])[0]}"
        raise InputError(f"{kind}={part.name}: cannot load {part.target!r}: {said}") from error
    bases = base if isinstance(base, tuple) else (base,)
    # by its own line of classes alone: a class that merely claims to be one is not asked
    if not (inspect.isclass(target) and any(one in inspect.getmro(target) for one in bases)):
        wanted = " or ".join(f"{one.__module__}.{one.__name__}" for one in bases)
        role = bases[0].__name__
        raise InputError(f"{kind}={part.name}: {part.target} is not a {role}; give a class that derives from {wanted}")
    return target


def _where(part: Part, error: Exception) -> str:
    """Return where a module was looked for, if it is not there."""
    first = part.target.partition(".")[0]
    if not isinstance(error, ModuleNotFoundError) or error.name != first or first in PACKAGES:
        return ""
    return f"; looked in {', '.join(part.folders) or 'no folder of yours'}, and on PYTHONPATH"
