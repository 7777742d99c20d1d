"""Values of somebody else's JSON against annotations, so that what reads them later finds what it expects."""

from __future__ import annotations

import dataclasses
import functools
import sys
import types
import typing
from collections.abc import Mapping
from typing import Any, TypeVar

T = TypeVar("T")
_WORDS = {
    str: "text",
    bool: "true or false",
    int: "whole number of 64 bits",
    float: "finite number",
    type(None): "null",
}


def made(kind: type[T], fields: Mapping[str, Any]) -> T:
    """Return a dataclass of fields that have the types of its annotations.

    Raises:
        TypeError: A field has another type, is missing or unknown; names it.
    """
    hints = _hints(typing.cast(Any, kind))
    for name, value in fields.items():
        if name in hints and not fits(value, hints[name]):
            raise TypeError(f"{kind.__name__}.{name}={value!r:.80}: must be {_words(hints[name])}")
    return kind(**fields)


def fits(value: object, annotation: Any) -> bool:
    """Return True if a value has the type of an annotation: of texts, numbers, lists, mappings and dataclasses."""
    if annotation is Any or annotation is object:
        return True
    origin, parts = typing.get_origin(annotation), typing.get_args(annotation)
    if origin in (typing.Union, types.UnionType):
        return any(fits(value, part) for part in parts)
    if origin in (tuple, list):
        return isinstance(value, tuple | list) and all(fits(one, parts[0]) for one in value)
    if origin is dict:
        return isinstance(value, dict) and all(
            fits(key, parts[0]) and fits(one, parts[1]) for key, one in value.items()
        )
    if annotation is float:
        return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= sys.float_info.max
    if annotation is int:
        return isinstance(value, int) and not isinstance(value, bool) and -(2**63) <= value < 2**64
    return isinstance(value, annotation)


@functools.cache
def _hints(kind: Any) -> dict[str, Any]:
    hints = typing.get_type_hints(kind)
    return {field.name: hints[field.name] for field in dataclasses.fields(kind)}


def _words(annotation: Any) -> str:
    origin, parts = typing.get_origin(annotation), typing.get_args(annotation)
    if origin in (typing.Union, types.UnionType):
        return " or ".join(map(_words, parts))
    if origin is not None:
        return "list" if origin in (tuple, list) else "object"
    return _WORDS.get(annotation, "object")
