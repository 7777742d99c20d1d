"""Quantities as text ("100 Mbit/s", "67 ms", "25 MiB") to base units (bit/s, s, bytes) and back.

Inside the program every quantity is a float or int in its base unit with the unit in its name (`rate_bit_s`,
`delay_s`, `size_bytes`). Text with a unit exists at the edges only, and what is ambiguous is refused: a bare number
other than 0 has no unit, and 0.5 may be 50% or 0.5%; "Mbps" may mean bits or bytes. "MB" is 10**6 bytes,
"MiB" is 2**20.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from fractions import Fraction
from statistics import median_low

_NUMBER = re.compile(r"^\s*([0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?)\s*([^\s0-9].*?)?\s*$")

_RATES = {"bit/s": 1.0, "kbit/s": 1e3, "Mbit/s": 1e6, "Gbit/s": 1e9, "Tbit/s": 1e12}
_TIMES = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0}
_SIZES = {"B": 1, "kB": 10**3, "MB": 10**6, "GB": 10**9, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}
_RATIOS = {"%": 0.01}
_MAX_CHARACTERS = 100
"""Length of the longest text that can be a quantity."""


def _parse(text: str | int | float, kind: str, table: dict[str, float] | dict[str, int]) -> float:
    if isinstance(text, bool) or not isinstance(text, str | int | float):
        raise ValueError(f"{kind} {text!r}: expected a number with a unit, one of {', '.join(u for u in table if u)}")
    if len(str(text)) > _MAX_CHARACTERS:
        raise ValueError(f"{kind} {str(text)[:20] + '…'!r}: too long; give a number with a unit")
    match = _NUMBER.match(str(text))
    unit = (match.group(2) or "") if match else ""
    if match is None:
        raise ValueError(f"{kind} {text!r}: not a number with a unit, such as 10 {next(u for u in table if u)}")
    value = float(match.group(1))
    if unit not in table:
        if value == 0 and unit == "":
            return 0.0
        known = ", ".join(u for u in table if u)
        found = f"unknown unit {unit!r}" if unit else "no unit"
        guess = _meant(unit, kind, value)
        raise ValueError(f"{kind} {text!r}: {found};{f' did you mean {guess}?' if guess else ''} use one of {known}")
    base = value * table[unit]
    if not math.isfinite(base) or (base == 0 and is_above_0(match.group(1))):
        raise ValueError(f"{kind} {text!r}: too {'small' if base == 0 else 'large'}; give one that a computer can hold")
    return base


def is_above_0(number: str) -> bool:
    """Return True for the text of a number with a digit other than 0, which no reader may round to 0."""
    return re.search("[1-9]", re.split("[eE]", number)[0]) is not None


_SPELT = {
    "ns": "nsec nsecs nanosecond nanoseconds",
    "us": "usec usecs microsecond microseconds \u03bcs",
    "ms": "msec msecs millisecond milliseconds millis",
    "s": "sec secs second seconds",
    "min": "m mins minute minutes",
    "h": "hr hrs hour hours",
    "kB": "k kb kbyte kbytes kilobyte kilobytes",
    "MB": "m mb mbyte mbytes megabyte megabytes",
    "GB": "g gb gbyte gbytes gigabyte gigabytes",
    "KiB": "ki kib",
    "MiB": "mi mib",
    "GiB": "gi gib",
    "B": "b byte bytes",
    "%": "pct percent",
}
"""Other spellings of units, in small letters."""
_BITS = re.compile(r"([kKmMgGtT]?)(?:bps|b/s|b/sec|bit/s|bit|bits|bit/sec|bits/s|bits/sec|bitps)", re.IGNORECASE)
_BYTES = re.compile(r"([kKmMgGtT]?)(?:Bps|B/s|B/sec|byte/s|bytes/s|bytes/sec)")
_FACTORS = {"": "", "k": "k", "m": "M", "g": "G", "t": "T"}


def _meant(unit: str, kind: str, value: float) -> str | None:
    """Return the unit that was probably meant by one that is unknown, or what a rate in bytes is in bits."""
    if kind == "rate":
        if match := _BYTES.fullmatch(unit):
            return f"{8 * value:g} {_FACTORS[match[1].lower()]}bit/s, which is {value:g} {match[1]}B/s"
        match = _BITS.fullmatch(unit)
        return f"{_FACTORS[match[1].lower()]}bit/s" if match else None
    known_units = {"time": [*_TIMES], "size": [*_SIZES], "ratio": [*_RATIOS]}[kind]
    asked = " ".join(unit.lower().split())
    exact = next((known for known in known_units if known.lower() == asked), None)
    return exact or next((known for known in known_units if asked in _SPELT.get(known, "").split()), None)


def exact(text: str) -> tuple[str, Fraction] | None:
    """Return the kind of a quantity and its amount in the base unit, not rounded; None for what has no known unit.

    >>> exact("10 ms") == exact("0.01 s")
    True
    """
    match = _NUMBER.match(text)
    unit = (match.group(2) or "") if match else ""
    if match is None or not unit:
        return None
    amount = Fraction(match.group(1))
    tables: dict[str, Mapping[str, float]] = {"rate": _RATES, "time": _TIMES, "size": _SIZES, "ratio": _RATIOS}
    for kind, table in tables.items():
        if unit in table:
            return kind, amount * Fraction(repr(table[unit]))
    return None


def parse_rate_bit_s(text: str | int | float) -> float:
    """Return bits per second.

    >>> parse_rate_bit_s("1 Gbit/s")
    1000000000.0
    """
    return _parse(text, "rate", _RATES)


def parse_time_s(text: str | int | float) -> float:
    """Return seconds.

    >>> parse_time_s("67 ms")
    0.067
    """
    return _parse(text, "time", _TIMES)


def parse_size_bytes(text: str | int | float) -> int:
    """Return bytes; "MB" is 10**6, "MiB" is 2**20.

    >>> parse_size_bytes("25 MiB")
    26214400
    """
    return round(_parse(text, "size", _SIZES))


def parse_ratio(text: str | int | float) -> float:
    """Return a ratio from 0 to 1 of a percentage.

    >>> parse_ratio("0.1%")
    0.001

    Raises:
        ValueError: The text is no percentage, such as a bare number other than 0, which may mean either.
    """
    require_percentage(text)
    value = _parse(text, "ratio", _RATIOS)
    if not 0 <= value <= 1 or math.isnan(value):
        raise ValueError(f"ratio {text!r}: must be from 0 to 1")
    return value


def require_percentage(text: object) -> None:
    """Check that a number other than 0 has its %.

    Raises:
        ValueError: It has none; names both readings.
    """
    if not isinstance(text, str | int | float) or isinstance(text, bool) or len(str(text)) > _MAX_CHARACTERS:
        return
    match = _NUMBER.match(str(text))
    value = float(match[1]) if match and not match[2] else 0.0
    if value != 0:
        raise ValueError(
            f"ratio {text!r}: has no %, and may mean {value:.12g}% or {value * 100:.12g}%; write the one that is meant"
        )


def _format(value: float, table: list[tuple[float, str]]) -> str:
    for factor, unit in table:
        if abs(value) >= factor:
            return f"{value / factor:.4g} {unit}"
    factor, unit = table[-1]
    return f"{value / factor:.4g} {unit}"


def format_rate(rate_bit_s: float) -> str:
    """1e9 becomes "1 Gbit/s"."""
    return _format(rate_bit_s, [(1e9, "Gbit/s"), (1e6, "Mbit/s"), (1e3, "kbit/s"), (1, "bit/s")])


def format_time(time_s: float) -> str:
    """0.067 becomes "67 ms"."""
    return _format(time_s, [(1, "s"), (1e-3, "ms"), (1e-6, "us"), (1e-9, "ns")])


def format_size(size_bytes: float) -> str:
    """4500000 becomes "4.5 MB"."""
    return _format(size_bytes, [(1e9, "GB"), (1e6, "MB"), (1e3, "kB"), (1, "B")])


_COLUMN_UNITS: dict[str, list[tuple[float, str]]] = {
    "time": [(1, "s"), (1e-3, "ms"), (1e-6, "us"), (1e-9, "ns")],
    "size": [(1e9, "GB"), (1e6, "MB"), (1e3, "kB"), (1, "B")],
    "rate": [(1e9, "Gbit/s"), (1e6, "Mbit/s"), (1e3, "kbit/s"), (1, "bit/s")],
}


def column_unit(values: Iterable[float], kind: str) -> tuple[float, str]:
    """Return the one unit of a column: how many base units it has, and its name; (1.0, "") for plain numbers.

    It is the largest unit in which the median of the values is at least 1, zeros apart.

    Args:
        values: Values of the column in base units.
        kind: "time", "size", "rate", or anything else for numbers without a unit.

    >>> column_unit([0.0, 0.05, 2.0, 0.4], "time")
    (0.001, 'ms')
    """
    units = _COLUMN_UNITS.get(kind)
    if units is None:
        return 1.0, ""
    sizes = [abs(value) for value in values if value]
    middle = median_low(sizes) if sizes else 1.0
    return next(((float(factor), name) for factor, name in units if middle >= factor), units[-1])


def significant(value: float, digits: int = 4) -> str:
    """Return a number with this many significant digits, and without an exponent if it is large.

    >>> significant(123456.7), significant(0.012345), significant(5.0)
    ('123457', '0.01235', '5')
    """
    return f"{value:.0f}" if 10**digits - 0.5 <= abs(value) < 1e15 else f"{value:.{digits}g}"
