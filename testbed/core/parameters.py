"""Checks of parameters: each returns one line that says what is wrong with a value, or None."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TypeGuard

MAX_BLOCK = 2**20
"""Values that share a scale: what is short is filled up to as many."""
_MAX_INTEGER = 2**63 - 1
"""Elements of a tensor, or steps of a run."""
_MAX_SHOWN = 80


def raise_all(*faults: str | None) -> None:
    """
    Raises:
        ValueError: any is not None; all of them, one a line.
    """
    if found := [fault for fault in faults if fault is not None]:
        raise ValueError("\n".join(found))


def whole(name: str, value: object, least: int, most: int | None = None, *, multiple_of: int = 1) -> str | None:
    if _is_whole(value, least, _MAX_INTEGER if most is None else most) and value % multiple_of == 0:
        return None
    kind = "whole number" if multiple_of == 1 else f"multiple of {multiple_of}"
    return f"{name}={shown(value)}: must be a {kind}, {_bounds(value, least, most)}"


def power_of_two(name: str, value: object, least: int, most: int | None = None) -> str | None:
    if _is_whole(value, least, _MAX_INTEGER if most is None else most) and value & (value - 1) == 0:
        return None
    return f"{name}={shown(value)}: must be a power of two, {_bounds(value, least, most)}"


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
    """
    Args:
        above, least: one of them is given, as is one of `below` and `most`.
        null: None will do.
    """
    if null and value is None:
        return None
    if isinstance(value, int | float) and not isinstance(value, bool):
        over = value > above if above is not None else least is not None and value >= least
        under = value < below if below is not None else most is not None and value <= most
        if over and under:
            return None
    low = f"at least {least:g}" if above is None else f"above {above:g}"
    high = f"at most {most:g}" if below is None else f"below {below:g}"
    return f"{name}={shown(value)}: must be {low} and {high}{_or_null(null)}"


def share(name: str, value: object) -> str | None:
    """In (0, 1]."""
    return f"{name}={shown(value)}: must be in (0, 1]" if number(name, value, above=0, most=1) else None


def fraction(name: str, value: object, *, null: bool = False) -> str | None:
    """In [0, 1), as what is kept of a running mean."""
    fault = number(name, value, least=0, below=1, null=null)
    return f"{name}={shown(value)}: must be in [0, 1){_or_null(null)}" if fault else None


def learning_rate(value: object) -> str | None:
    return number("learning_rate", value, above=0, below=10, null=True)


def flag(name: str, value: object) -> str | None:
    return None if isinstance(value, bool) else f"{name}={shown(value)}: must be true or false"


def settings(name: str, value: object) -> str | None:
    """Parameters by their names, or none."""
    if value is None or isinstance(value, Mapping):
        return None
    return f"{name}={shown(value)}: must be parameters by their names, or null"


def choice(name: str, value: object, known: Collection[object]) -> str | None:
    """
    Args:
        known: texts, or whole numbers.
    """
    if isinstance(value, str | int) and not isinstance(value, bool) and value in known:
        return None
    return f"{name}={shown(value)}: unknown; known: {', '.join(map(str, known))}"


def inner_feedback(name: str, value: str, wrapper: str) -> str | None:
    """Of a compressor inside another one, whose own counts."""
    return None if value == "auto" else f"{name}={value}: must be auto; the feedback of {wrapper} counts"


def shown(value: object) -> str:
    """On one line, which is not long."""
    try:
        text = " ".join(str(value).split())
    except ValueError:  # of integers of thousands of digits Python makes no text
        return f"{type(value).__name__} too long to show"
    return text if len(text) <= _MAX_SHOWN else text[: _MAX_SHOWN - 1] + "…"


def _is_whole(value: object, least: int, most: int) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and least <= value <= most


def _bounds(value: object, least: int, most: int | None) -> str:
    if most is not None:
        return f"at least {least} and at most {most}"
    over = isinstance(value, int) and value > _MAX_INTEGER
    return f"at least {least}{' and below 2**63' if over else ''}"


def _or_null(null: bool) -> str:
    return ", or null" if null else ""
