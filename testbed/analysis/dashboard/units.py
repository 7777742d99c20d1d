"""Values with their units as Grafana prints them: those that our dashboards use."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

from testbed.core.errors import InputError

_SI = {1e-12: " p", 1e-9: " n", 1e-6: " µ", 1e-3: " m", 1.0: " ", 1e3: " k", 1e6: " M", 1e9: " G", 1e12: " T"}
_TIMES = {1e-9: " ns", 1e-6: " µs", 1e-3: " ms", 1.0: " s", 60.0: " min", 3600.0: " hour", 86400.0: " day"}
_SCALED: dict[str, tuple[dict[float, str], str]] = {
    "short": ({1.0: "", 1e3: " K", 1e6: " Mil", 1e9: " Bil", 1e12: " Tri"}, ""),
    "cps": ({1.0: "", 1e3: "K", 1e6: "M", 1e9: "B", 1e12: "T"}, " c/s"),
    "s": ({**_TIMES, 604800.0: " week", 31556900.0: " year"}, ""),
    "decbytes": (_SI, "B"),
    "bps": (_SI, "b/s"),
    "pps": (_SI, "p/s"),
}
"""Of a unit: what its prefixes stand for, and its symbol."""
_TINY = 1e-6
"""Below, numbers that have no prefix have an exponent."""
UNITS = ("none", "percentunit", *_SCALED)


def shown(value: float | None, unit: str, decimals: int | None = None) -> str:
    """
    Args:
        decimals: as many as told, or as few as leave three significant digits.

    Raises:
        InputError: no such unit is known here.

    >>> shown(0.0605, "s"), shown(1_250_000, "decbytes"), shown(0.125, "percentunit"), shown(20, "suffix:×")
    ('60.5 ms', '1.25 MB', '12.5%', '20 ×')
    """
    if value is None:
        return ""
    factor, suffix = _scale(value, unit)
    if not math.isfinite(value):
        return str(value)
    if unit == "s" and value == 0:
        decimals = 0
    elif unit == "s" and factor >= 60 and value != factor:
        suffix += "s"
    return f"{fixed(value / factor, decimals)}{suffix}"


def ticks(values: Sequence[float], unit: str) -> list[str]:
    """Of an axis: all in the unit of the largest.

    >>> ticks([0, 0.5, 1], "s"), ticks([0, 400_000, 800_000], "bps")
    (['0 s', '0.5 s', '1 s'], ['0 kb/s', '400 kb/s', '800 kb/s'])
    """
    factor, suffix = _scale(max(values, key=abs, default=0.0), unit)
    return [f"{value / factor + 0.0:.4g}{suffix}" for value in values]


def fixed(value: float, decimals: int | None = None) -> str:
    """
    >>> fixed(3.14159), fixed(1234.5), fixed(7.0), fixed(0.01234), fixed(0.5, 2)
    ('3.14', '1235', '7', '0.0123', '0.50')
    """
    if decimals is None and 0 < abs(value) < _TINY:
        return re.sub(r"e-0?", "e-", f"{value:.3g}")
    if decimals is None:
        decimals = 0 if float(value).is_integer() else max(0, 2 - math.floor(math.log10(abs(value))))
    scale = 10.0**decimals
    # as JavaScript rounds: halves upwards
    return f"{math.floor(value * scale + 0.5) / scale + 0.0:.{decimals}f}"


def _scale(value: float, unit: str) -> tuple[float, str]:
    """What a value is divided by, and what stands behind it."""
    if unit.startswith("suffix:"):
        return 1.0, f" {unit.removeprefix('suffix:')}"
    if unit not in UNITS:
        raise InputError(f"unit {unit}: not known here, only {', '.join(UNITS)} and suffix:…")
    if unit in ("none", "percentunit"):
        return (1.0, "") if unit == "none" else (0.01, "%")
    prefixes, symbol = _SCALED[unit]
    fitting = [factor for factor in prefixes if factor <= abs(value)] or [min(prefixes)]
    factor = max(fitting) if value else 1.0
    return factor, f"{prefixes[factor]}{symbol}"
