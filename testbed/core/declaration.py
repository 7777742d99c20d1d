"""Parameters declared once, in the class: constructors that check them, and what they declare as data.

A parameter is declared in the signature of the constructor, by a type that carries a `Kind` of
`testbed.core.kinds`, and explained by its entry under `Args:` in the docstring of the class:

    class ChunkedTopK(Compressor):
        \"""Send the largest entries of each chunk.

        Args:
            density: Share of the entries of a chunk that is sent.
            chunk: Entries that compete.
        \"""

        def __init__(self, *, density: Share = 0.01, chunk: Annotated[int, Whole(2, 65536)] = 4096) -> None:

`X | None` allows null. Before the body of the constructor runs, every given value is checked, and all faults are raised
together. What several parameters have to fulfil together is ordinary code in the body: lines for `raise_all`.
"""

from __future__ import annotations

import ast
import functools
import inspect
import itertools
import re
import textwrap
import typing
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import UnionType
from typing import Any, TypeVar

from testbed.core.kinds import Choice, Kind, TrueOrFalse
from testbed.core.parameters import raise_all

T = TypeVar("T", bound=type)
REQUIRED = inspect.Parameter.empty
"""Default of a parameter that has to be given."""
OPTIONAL: Any = object()
"""Default of a parameter that may be left out, and has no value then."""
_ENTRY = re.compile(r"^(\w+(?:, \w+)*): +(.*)$")


class Declared:
    """Base of classes whose constructors check what they are given."""

    def __init_subclass__(cls, **arguments: Any) -> None:
        super().__init_subclass__(**arguments)
        checked(cls)


def checked(cls: T) -> T:
    """Make the constructor of `cls` check what it is given; for a dataclass as a decorator above `dataclass`.

    The constructor raises ValueError with a line for each fault, and TypeError if an annotation cannot be read.
    """
    init = vars(cls).get("__init__")
    if init is not None:

        @functools.wraps(init)
        def checking(self: Any, *values: Any, **given: Any) -> None:
            kinds = declared_kinds(init)
            by_place = zip(list(inspect.signature(init).parameters)[1:], values, strict=False) if values else ()
            named = dict(by_place) | given
            raise_all(
                *(
                    line
                    for name, (kind, null) in kinds.items()
                    if name in named
                    for line in kind.faults(name, named[name], null=null)
                )
            )
            init(self, *values, **given)

        cls.__init__ = checking  # type: ignore[misc]
    return cls


@functools.cache
def declared_kinds(function: Callable[..., Any]) -> dict[str, tuple[Kind, bool]]:
    """Return the kind of each parameter that declares one, and whether it may be None.

    Raises:
        TypeError: An annotation names what is not known when the function is called.
    """
    try:
        hints = typing.get_type_hints(function, include_extras=True)
    except NameError as error:
        where = f"{function.__module__}.{function.__qualname__}"
        raise TypeError(f"{where}: cannot read the types of its parameters: {error}; import it at run time") from error
    found = {name: _kind(hint) for name, hint in hints.items()}
    return {name: kind for name, kind in found.items() if kind is not None}


def _kind(hint: Any) -> tuple[Kind, bool] | None:
    if typing.get_origin(hint) in (typing.Union, UnionType):
        options = typing.get_args(hint)
        found = next((kind for option in options if (kind := _kind(option))), None)
        return None if found is None else (found[0], type(None) in options)
    kinds = [one for one in getattr(hint, "__metadata__", ()) if isinstance(one, Kind)]
    return (kinds[0], False) if kinds else None


@dataclass(frozen=True, kw_only=True)
class Parameter:
    """Declaration of one parameter of a class."""

    name: str
    kind: Kind | None
    """Kind in its type; None if the type carries none, as in plug-ins outside this repository."""
    null: bool
    default: Any
    """REQUIRED or OPTIONAL if there is none."""
    sentence: str
    """Entry under `Args:`; empty if there is none."""

    @property
    def type_text(self) -> str:
        return "" if self.kind is None else self.kind.type_text

    @property
    def values_text(self) -> str:
        """Range or choices."""
        allowed = [] if self.kind is None else [self.kind.values_text.removesuffix(" and below inf")]
        return ", or ".join([*filter(None, allowed), *(["null"] if self.null else [])])

    def faults(self, value: object) -> Iterator[str]:
        """Yield a line for each fault of `value`."""
        if self.kind is not None:
            yield from self.kind.faults(self.name, value, null=self.null)


@functools.cache
def declaration(target: Callable[..., Any]) -> tuple[Parameter, ...]:
    """Return the parameters that `target` declares, in their order.

    Args:
        target: Class, function, or TypedDict of parameters that a function takes by `**`; their default is OPTIONAL.
    """
    if typing.is_typeddict(target):
        function, defaults = target, dict.fromkeys(target.__annotations__, OPTIONAL)
    else:
        function = inspect.unwrap(vars(target).get("__init__", target.__init__) if inspect.isclass(target) else target)
        signature = inspect.signature(target).parameters.values()
        defaults = {one.name: one.default for one in signature if one.kind is not inspect.Parameter.VAR_KEYWORD}
    kinds, sentences = declared_kinds(function), _sentences(target)
    none = None, False
    return tuple(
        Parameter(name=name, kind=kind, null=null, default=default, sentence=sentences.get(name, ""))
        for name, default in defaults.items()
        for kind, null in (kinds.get(name, none),)
    )


def described(target: Callable[..., Any], values: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the parameters of `target` as data for JSON, those of a TypedDict behind `**` among them.

    Args:
        values: Values of the YAML file, which are the defaults of a run; `???` stands for one that has to be given.

    Returns:
        For each parameter "name", "type", "values", "unit", "choices" (None: it is no choice), "default" (None also if
        there is none), "required", "null" (None is allowed) and "meaning".
    """
    hints = typing.get_type_hints(target).values() if inspect.isfunction(target) else ()
    dictionaries = [one for hint in hints for one in typing.get_args(hint) if typing.is_typeddict(one)]
    return [_as_data(one, values) for source in (target, *dictionaries) for one in declaration(source)]


def _as_data(one: Parameter, values: Mapping[str, Any]) -> dict[str, Any]:
    given = values.get(one.name, "???")
    is_given = given != "???" and not (given is None and one.default is REQUIRED and not one.null)
    default = given if is_given else None if one.default in (REQUIRED, OPTIONAL) else one.default
    flags = ["true", "false"] if isinstance(one.kind, TrueOrFalse) else None
    return {
        "name": one.name,
        "type": one.type_text,
        "values": one.values_text,
        "unit": getattr(one.kind, "unit", ""),
        "choices": [str(choice) for choice in one.kind.known] if isinstance(one.kind, Choice) else flags,
        "default": list(default) if isinstance(default, tuple) else default,
        "required": one.default is REQUIRED and not is_given,
        "null": one.null,
        "meaning": one.sentence,
    }


def _sentences(target: Callable[..., Any]) -> dict[str, str]:
    """Return the meaning of each parameter, from the docstrings of a class, of those that it derives from, and of the
    attributes of dataclasses."""
    sources = reversed(inspect.getmro(target)[:-1]) if inspect.isclass(target) else (target,)
    found: dict[str, str] = {}
    for source in sources:
        found |= dict(_attribute_docstrings(source)) | dict(_entries(inspect.cleandoc(source.__doc__ or "")))
    return found


def _entries(docstring: str) -> Iterator[tuple[str, str]]:
    """Yield names and texts from the `Args:` of a docstring; `a, b: text` is of both."""
    section = re.search(r"^Args:\n((?:    .*\n|\n)*)", docstring + "\n", re.MULTILINE)
    entries: list[tuple[str, str]] = []
    for line in textwrap.dedent(section[1]).splitlines() if section else ():
        if match := _ENTRY.match(line):
            entries.append((match[1], match[2]))
        elif entries and line.strip():
            entries[-1] = (entries[-1][0], f"{entries[-1][1]} {line.strip()}")
    for names, text in entries:
        yield from ((name, text) for name in names.split(", "))


def _attribute_docstrings(source: object) -> Iterator[tuple[str, str]]:
    if not (hasattr(source, "__dataclass_fields__") or typing.is_typeddict(source)):
        return
    (tree,) = ast.parse(textwrap.dedent(inspect.getsource(source))).body  # type: ignore[arg-type]
    body = tree.body if isinstance(tree, ast.ClassDef) else []
    for attribute, text in itertools.pairwise(body):
        match attribute, text:
            case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(said))):
                yield name, " ".join(said.split())
