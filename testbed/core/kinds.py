"""Kinds of values that parameters have.

A `Kind` stands in the type of a parameter, as in `Annotated[int, Whole(1, 9)]`; `testbed.core.parameters` has the usual
types, and `testbed.core.declaration` has constructors check what they are given. Kinds are metadata for pydantic too:
`TypeAdapter(Annotated[int, Whole(1, 9)]).validate_python(value)` makes the same check.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeGuard

from testbed.core.errors import nearest

_MAX_INTEGER = 2**63 - 1
"""Largest number of elements of a tensor, or of steps of a run."""
_MAX_SHOWN = 80


@dataclass(frozen=True)
class Kind(ABC):
    """Values that a parameter may have."""

    @property
    @abstractmethod
    def type_text(self) -> str:
        """Type as a user reads it, with the unit."""

    @property
    def values_text(self) -> str:
        """Range or choices as a user reads them; empty if the type says all."""
        return ""

    @property
    def bases(self) -> tuple[type[Any], ...] | None:
        """Base classes of the objects that `_target_` may name inside a value; empty: none may be named.

        None allows any class with declared parameters.
        """
        return ()

    def allows(self, value: object) -> bool:
        """Return True for a value of this kind. A derived class overrides this, or `faults`."""
        return next(self.faults("value", value), None) is None

    def wanted(self, value: object) -> str:
        """Return what is said of `value`, which is not allowed."""
        return f"must be {self.values_text or self.type_text}"

    def faults(self, name: str, value: object, *, null: bool = False) -> Iterator[str]:
        """Yield a line for each fault of `value`.

        Args:
            name: Name of the parameter, with which lines begin.
            null: True if None is allowed too.
        """
        if not ((null and value is None) or self.allows(value)):
            yield self.refusal(name, value, null=null)

    def refusal(self, name: str, value: object, *, null: bool = False) -> str:
        """Return the line about `value`, which is not allowed."""
        return f"{name}={shown(value)}: {self.wanted(value)}{', or null' if null else ''}"

    def __get_pydantic_core_schema__(self, _source: object, _handler: object) -> dict[str, Any]:
        def checked(value: object) -> object:
            for line in self.faults("value", value):
                raise ValueError(line)
            return value

        # what pydantic_core.core_schema.no_info_plain_validator_function returns; the core imports no package
        return {"type": "function-plain", "function": {"type": "no-info", "function": checked}}


@dataclass(frozen=True)
class Number(Kind):
    """Numbers of a range, whole ones among them; never NaN."""

    above: float | None = None
    least: float | None = None
    below: float | None = None
    most: float | None = None
    multiple_of: float | None = None
    unit: str = ""
    written: str = ""

    @property
    def type_text(self) -> str:
        return f"number, {self.unit}" if self.unit else "number"

    @property
    def values_text(self) -> str:
        low = f"at least {self.least:g}" if self.above is None else f"above {self.above:g}"
        high = f"at most {self.most:g}" if self.below is None else f"below {self.below:g}"
        step = "" if self.multiple_of is None else f", a multiple of {self.multiple_of:g}"
        return self.written or f"{low} and {high}{step}"

    def allows(self, value: object) -> bool:
        if not isinstance(value, int | float) or isinstance(value, bool):
            return False
        over = value > self.above if self.above is not None else self.least is not None and value >= self.least
        under = value < self.below if self.below is not None else self.most is not None and value <= self.most
        return over and under and (self.multiple_of is None or value % self.multiple_of == 0)


@dataclass(frozen=True)
class Whole(Kind):
    """Whole numbers of a range, of any size that a tensor or a run can have."""

    least: int
    most: int | None = None
    multiple_of: int = 1
    unit: str = ""

    @property
    def type_text(self) -> str:
        return f"{self._kind}, {self.unit}" if self.unit else self._kind

    @property
    def values_text(self) -> str:
        return _bounds(None, self.least, self.most)

    @property
    def _kind(self) -> str:
        return "whole number" if self.multiple_of == 1 else f"multiple of {self.multiple_of}"

    def allows(self, value: object) -> bool:
        return _is_whole(value, self.least, self.most) and value % self.multiple_of == 0

    def wanted(self, value: object) -> str:
        return f"must be a {self._kind}, {_bounds(value, self.least, self.most)}"


@dataclass(frozen=True)
class PowerOfTwo(Whole):
    """Powers of two, 1 among them."""

    _kind = "power of two"

    def allows(self, value: object) -> bool:
        return _is_whole(value, self.least, self.most) and value & (value - 1) == 0


@dataclass(frozen=True)
class Choice(Kind):
    """Texts or whole numbers of a list."""

    known: Collection[object]

    type_text = "choice"

    def __post_init__(self) -> None:
        object.__setattr__(self, "known", tuple(self.known))  # hashable, as `X | None` needs it

    @property
    def values_text(self) -> str:
        return ", ".join(map(str, self.known))

    def allows(self, value: object) -> bool:
        return isinstance(value, str | int) and not isinstance(value, bool) and value in self.known

    def wanted(self, value: object) -> str:
        near = nearest(value, map(str, self.known)) if isinstance(value, str) else None
        return f"unknown;{f' did you mean {near}?' if near else ''} known: {self.values_text}"


@dataclass(frozen=True)
class TrueOrFalse(Kind):
    """The two truth values, and never 1 or 0."""

    type_text = "true or false"

    def allows(self, value: object) -> bool:
        return isinstance(value, bool)


@dataclass(frozen=True)
class Text(Kind):
    """Any text."""

    type_text = "text"

    def allows(self, value: object) -> bool:
        return isinstance(value, str)


@dataclass(frozen=True)
class Part(Kind):
    """An object that a user names by `_target_`."""

    base: type[Any] | tuple[type[Any], ...]
    what: str
    """Phrase with its article, such as "a compressor"."""

    @property
    def type_text(self) -> str:
        return f"{self.what}, given as {{_target_: …}}"

    @property
    def bases(self) -> tuple[type[Any], ...]:
        given = self.base if isinstance(self.base, tuple) else (self.base,)
        return tuple(one for one in given if one.__module__ != "builtins")

    def allows(self, value: object) -> bool:
        return isinstance(value, self.base)

    def refusal(self, name: str, value: object, *, null: bool = False) -> str:
        is_plain = value is None or isinstance(value, str | int | float | list | dict)
        return super().refusal(name, value if is_plain else type(value).__name__, null=null)


@dataclass(frozen=True)
class Settings(Kind):
    """Parameters by their names."""

    type_text = "parameters by their names"
    bases = None

    def allows(self, value: object) -> bool:
        return isinstance(value, Mapping)


@dataclass(frozen=True)
class PathOf(Kind):
    """Paths of `what`, such as "a CSV file", which need not exist."""

    what: str
    absolute: bool = True

    @property
    def type_text(self) -> str:
        return f"the {'absolute ' if self.absolute else ''}path of {self.what}"

    def allows(self, value: object) -> bool:
        return isinstance(value, str | Path) and (Path(value).is_absolute() or not self.absolute)


@dataclass(frozen=True)
class ListOf(Kind):
    """Lists of values of one kind."""

    kind: Kind
    what: str
    """Phrase with its article, such as "a number for each worker"."""
    least: int = 0
    most: int | None = None
    """Bounds of the length; None: any."""

    @property
    def type_text(self) -> str:
        return self.what

    @property
    def values_text(self) -> str:
        return self.kind.values_text

    @property
    def bases(self) -> tuple[type[Any], ...] | None:
        return self.kind.bases

    def allows(self, value: object) -> bool:
        return self._is_list(value) and all(map(self.kind.allows, value))

    def wanted(self, value: object) -> str:
        return f"must be {self.what}"

    def faults(self, name: str, value: object, *, null: bool = False) -> Iterator[str]:
        if self._is_list(value):
            for index, one in enumerate(value):
                yield from self.kind.faults(f"{name}[{index}]", one)
        elif not (null and value is None):
            yield self.refusal(name, value, null=null)

    def _is_list(self, value: object) -> TypeGuard[Sequence[object]]:
        if not isinstance(value, Sequence) or isinstance(value, str):
            return False
        return self.least <= len(value) and (self.most is None or len(value) <= self.most)


def shown(value: object) -> str:
    """Return `value` as text on one line of at most 80 characters."""
    try:
        text = " ".join(str(value).split())
    except ValueError:  # Python makes no text of integers of thousands of digits
        return f"{type(value).__name__} too long to show"
    return text if len(text) <= _MAX_SHOWN else text[: _MAX_SHOWN - 1] + "…"


def _is_whole(value: object, least: int, most: int | None) -> TypeGuard[int]:
    top = _MAX_INTEGER if most is None else most
    return isinstance(value, int) and not isinstance(value, bool) and least <= value <= top


def _bounds(value: object, least: int, most: int | None) -> str:
    over = " and below 2**63" if isinstance(value, int) and value > _MAX_INTEGER else ""
    return f"at least {least}{over}" if most is None else f"at least {least} and at most {most}"
