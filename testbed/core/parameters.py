"""Types of parameters, checks of single values, and how faults are raised: all at once.

Constructors declare their parameters by the types (`density: Share`, `rank: Annotated[int, Whole(1, 64)] | None`), and
`testbed.core.declaration` has them checked. The functions check a value that no constructor declares: each returns one
line that says what is wrong, or None.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Annotated, Any

from testbed.core.kinds import Choice, Kind, Number, PowerOfTwo, TrueOrFalse, Whole
from testbed.core.units import parse_rate_bit_s, parse_ratio, parse_size_bytes, parse_time_s


@dataclass(frozen=True)
class Quantity(Kind):
    """Text with a unit, as `testbed.core.units` reads it."""

    parse: Callable[[Any], float]
    what: str
    above_0: bool = False

    @property
    def type_text(self) -> str:
        return f"{self.what} as text with a unit"

    @property
    def values_text(self) -> str:
        return "above 0" if self.above_0 else ""

    def allows(self, value: object) -> bool:
        return self._fault(value) is None

    def wanted(self, value: object) -> str:
        return str(self._fault(value))

    def _fault(self, value: object) -> str | None:
        try:
            return "must be above 0" if self.parse(value) <= 0 and self.above_0 else None
        except ValueError as error:
            return str(error)


Share = Annotated[float, Number(above=0, most=1, written="in (0, 1]")]
Fraction = Annotated[float, Number(least=0, below=1, written="in [0, 1)")]
"""Such as what is kept of a running mean."""
Positive = Annotated[float, Number(above=0, below=math.inf)]
NotNegative = Annotated[float, Number(least=0, below=math.inf)]
Seconds = Annotated[float, Number(above=0, below=math.inf, unit="s")]
LearningRate = Annotated[float, Number(above=0, below=10)]
Count = Annotated[int, Whole(1)]
CountOrZero = Annotated[int, Whole(0)]
Flag = Annotated[bool, TrueOrFalse()]
Size = Annotated[str, Quantity(parse_size_bytes, "size", above_0=True)]
Rate = Annotated[str, Quantity(parse_rate_bit_s, "rate")]
Duration = Annotated[str, Quantity(parse_time_s, "time")]
Ratio = Annotated[str, Quantity(parse_ratio, "percentage")]

MAX_BLOCK = 2**20
"""Largest number of values that share a scale."""


def raise_all(*faults: str | None) -> None:
    """Raise one error for all faults.

    Raises:
        ValueError: any fault is not None; all of them, one a line.
    """
    if found := [fault for fault in faults if fault is not None]:
        raise ValueError("\n".join(found))


def whole(name: str, value: object, least: int, most: int | None = None, *, multiple_of: int = 1) -> str | None:
    return fault(Whole(least, most, multiple_of), name, value)


def power_of_two(name: str, value: object, least: int, most: int | None = None) -> str | None:
    return fault(PowerOfTwo(least, most), name, value)


def number(
    name: str,
    value: object,
    *,
    above: float | None = None,
    least: float | None = None,
    below: float | None = None,
    most: float | None = None,
    null: bool = False,
) -> str | None:
    """Return what is wrong with a number. One of `above` and `least` is given, and one of `below` and `most`."""
    return fault(Number(above=above, least=least, below=below, most=most), name, value, null=null)


def share(name: str, value: object) -> str | None:
    return fault(kind_in(Share), name, value)


def fraction(name: str, value: object, *, null: bool = False) -> str | None:
    return fault(kind_in(Fraction), name, value, null=null)


def flag(name: str, value: object) -> str | None:
    return fault(TrueOrFalse(), name, value)


def choice(name: str, value: object, known: Collection[object]) -> str | None:
    return fault(Choice(known), name, value)


def inner_feedback(name: str, value: str, wrapper: str) -> str | None:
    """Return what is wrong with the feedback of a compressor inside another one."""
    return None if value == "auto" else f"{name}={value}: must be auto; the feedback of {wrapper} counts"


def fault(kind: Kind, name: str, value: object, *, null: bool = False) -> str | None:
    """Return the first fault of `value`, or None."""
    return next(kind.faults(name, value, null=null), None)


def kind_in(declared: Any) -> Kind:
    """Return the kind of an `Annotated` type."""
    return next(one for one in declared.__metadata__ if isinstance(one, Kind))
