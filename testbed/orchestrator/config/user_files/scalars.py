"""Scalars without quotes as the core schema of YAML 1.2 reads them.

`yes`, `on`, `1:30`, `1_000` and dates are text there, and `010` is ten. What has no exact value is refused, never
rounded to infinity or 0.
"""

from __future__ import annotations

import math
import re

from testbed.core.units import is_above_0
from testbed.core.user_files.tables import MAX_DIGITS
from testbed.core.user_files.text import shown

_NULL = re.compile(r"null|Null|NULL|~|")
_TRUE = re.compile(r"true|True|TRUE")
_FALSE = re.compile(r"false|False|FALSE")
_WHOLE = re.compile(r"[-+]?[0-9]+")
_OCTAL = re.compile(r"0o[0-7]+")
_HEXADECIMAL = re.compile(r"0x[0-9a-fA-F]+")
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")
_NOT_FINITE = re.compile(r"[-+]?(?:\.inf|\.Inf|\.INF)|\.nan|\.NaN|\.NAN")


def value_of(text: str) -> str | int | float | bool | None:
    """Return the value of a scalar that `fault_of` finds nothing wrong with."""
    if _NULL.fullmatch(text):
        return None
    if _TRUE.fullmatch(text):
        return True
    if _FALSE.fullmatch(text):
        return False
    if _WHOLE.fullmatch(text):
        return int(text)
    if _OCTAL.fullmatch(text) or _HEXADECIMAL.fullmatch(text):
        return int(text, 0)
    return float(text) if _FLOAT.fullmatch(text) else text


def fault_of(text: str) -> str | None:
    """Return what is wrong with a scalar that stands without quotes, or None."""
    if _NOT_FINITE.fullmatch(text):
        return f"{shown(text)} is not a finite number; give a number"
    if not any(pattern.fullmatch(text) for pattern in (_WHOLE, _OCTAL, _HEXADECIMAL, _FLOAT)):
        return None
    if len(text) > MAX_DIGITS:
        return f"{shown(text)} has {len(text)} characters; a number has at most {MAX_DIGITS}"
    value = value_of(text)
    assert isinstance(value, int | float)
    if not math.isfinite(value) or (value == 0 and text[:2] != "0x" and is_above_0(text)):
        return f"{shown(text)} is too {'small' if value == 0 else 'large'}; give a number that a computer can hold"
    return None
