"""Of what kind a value of a worker's message is."""

from __future__ import annotations

import math
from typing import Any

from testbed.core.record.telemetry import PHASES


def number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**63


def text(value: object) -> bool:
    return isinstance(value, str) and len(value) <= 100_000


def phases(value: object) -> bool:
    return isinstance(value, dict) and set(value) == set(PHASES) and all(number(v) for v in value.values())


def counts(value: object) -> bool:
    return isinstance(value, list) and all(map(count, value))


def numbers(value: object) -> bool:
    return isinstance(value, list) and all(map(number, value))


def texts(value: object) -> bool:
    return isinstance(value, list) and all(map(text, value))


def rows(value: object) -> bool:
    return isinstance(value, list) and all(map(numbers, value))


def named_numbers(value: object) -> bool:
    return isinstance(value, dict) and all(text(key) and number(each) for key, each in value.items())


def factors(value: object) -> bool:
    return isinstance(value, list) and all(
        isinstance(factor, dict)
        and set(factor) == {"name", "dimension", "owner"}
        and text(factor["name"])
        and count(factor["dimension"])
        and (factor["owner"] is None or count(factor["owner"]))
        for factor in value
    )


_FACTORISED = {
    "layer": text,
    "rank": count,
    "full_rank": count,
    "elements": count,
    "factor_elements": count,
    "lost_share": number,
}


def factorised(value: object) -> bool:
    return isinstance(value, list) and all(
        isinstance(layer, dict)
        and set(layer) == set(_FACTORISED)
        and all(check(layer[key]) for key, check in _FACTORISED.items())
        for layer in value
    )


def reasons(value: object) -> bool:
    return isinstance(value, dict) and all(text(key) and text(reason) for key, reason in value.items())


def flag(value: Any) -> bool:
    return isinstance(value, bool)


def or_none(check: Any) -> Any:
    return lambda value: value is None or check(value)
