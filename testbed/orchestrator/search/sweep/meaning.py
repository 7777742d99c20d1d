"""Meaning of a value on the command line: one value in several spellings has one meaning.

`3` and `3.0`, `10 ms` and `0.01 s`, `1 Gbit/s` and `1000 Mbit/s`, `true` and `True`, `./a.yaml` and `a.yaml` are one
value each, inside lists and dictionaries too.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Hashable
from fractions import Fraction
from typing import Any

from hydra.core.override_parser.overrides_parser import OverridesParser

from testbed.core.units import exact
from testbed.orchestrator.config.grammar.script_arguments import ARGUMENTS
from testbed.orchestrator.config.script_parameters import arguments_of

_BARE = {"ratio": "", "rate": "_bit_s", "time": "_s", "size": "_bytes"}
"""By kind, the end of the keys whose bare number is in the base unit."""


def meaning(key: str, text: str) -> Hashable:
    """Return what two spellings of one value have in common.

    Args:
        key: Key that takes the value.
        text: Value as an override has it, in quotes where it has some.
    """
    if key == ARGUMENTS:
        return tuple(arguments_of(_parsed(text), text)[0]) or text
    if os.path.isfile(text):  # a path is taken as it is typed, and may be no override grammar
        return _text(key, text)
    return _meaning(key, _parsed(text))


@functools.lru_cache(maxsize=10_000)
def _parsed(text: str) -> Any:
    """Return the value that a text stands for. Files are not looked at here: they may come and go."""
    return OverridesParser.create().parse_override(f"key={text}").value()


def _meaning(key: str, value: Any) -> Hashable:
    if isinstance(value, bool) or value is None:
        return (type(value).__name__, value)
    if isinstance(value, int | float):
        return _number(value)
    if isinstance(value, list):
        return ("list", *(_meaning(key, inner) for inner in value))
    if isinstance(value, dict):
        return ("dict", frozenset((str(name), _meaning(str(name), inner)) for name, inner in value.items()))
    return _text(key, str(value))


def _number(value: float) -> Hashable:
    return Fraction(repr(value)) if value - value == 0 else str(value)


def _text(key: str, text: str) -> Hashable:
    if (quantity := exact(text)) is not None:
        kind, amount = quantity
        # a key that names its base unit takes a bare number too
        return amount if key.endswith(_BARE[kind]) else (kind, amount)
    is_path = os.sep in text or os.path.splitext(text)[1]
    return os.path.realpath(text) if is_path and os.path.isfile(text) else text
