"""`key=a,b,c`: a key and the values that a sweep gives it, in Hydra's syntax: lists, choice(), range(), glob().

A condition, `key=a,b other=c`, is read the same way: all of it must hold, and a comma means or.
"""

from __future__ import annotations

import math
import shlex
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import ChoiceSweep, Glob, IntervalSweep, RangeSweep, Sweep
from hydra.core.override_parser.types import Override as HydraOverride
from hydra.errors import HydraException

from testbed.core.errors import InputError
from testbed.orchestrator.config.config import GROUPS, names
from testbed.orchestrator.config.grammar.overrides import path_given, read_override, unread
from testbed.orchestrator.search.sweep.meaning import meaning

MAX_VALUES = 1000
"""Of an axis; a range with more is a slip."""


@dataclass(frozen=True)
class Value:
    text: str
    """As an override takes it, in quotes where it had some."""
    plain: str
    """Text that tables show; values are compared by their meaning."""


@dataclass(frozen=True)
class Axis:
    """One value, where all runs have it."""

    key: str
    values: tuple[Value, ...]

    @property
    def meanings(self) -> dict[Hashable, str]:
        """Meaning of each value, with how it is shown."""
        return {meaning(self.key, value.text): value.plain for value in self.values}


@dataclass(frozen=True)
class Condition:
    text: str
    wanted: Mapping[str, Mapping[Hashable, str]]
    """Allowed meanings by key, of which a run must have one, each with the text that is shown."""

    def holds(self, values: Mapping[str, Value]) -> bool:
        """Of the values of a run; what it has no value for does not hold."""
        return all(key in values and meaning(key, values[key].text) in wanted for key, wanted in self.wanted.items())


def read_axes(texts: Sequence[str]) -> list[Axis]:
    """
    Raises:
        InputError: with every fault at once.
    """
    axes: list[Axis] = []
    faults: list[str] = []
    for text in texts:
        try:
            axes.append(_read_axis(text))
        except HydraException as error:
            faults.append(unread(text, error))
        except ValueError as error:
            faults.append(f"{text}: {error}")
    keys = [axis.key for axis in axes]
    faults += [
        f"{key}: given {keys.count(key)} times; give it once" for key in dict.fromkeys(keys) if keys.count(key) > 1
    ]
    if faults:
        raise InputError(*faults)
    return axes


def read_condition(text: str) -> Condition:
    """
    Raises:
        InputError: with every fault at once.
    """
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise InputError(f"{text}: {error}") from error
    axes = read_axes(words)
    if not axes:
        raise InputError("a condition is empty; give key=value, several with spaces between")
    return Condition(text, {axis.key: axis.meanings for axis in axes})


def _read_axis(text: str) -> Axis:
    if (found := path_given(text, must_exist=True)) is not None:
        return Axis(found[0], (Value(found[1], found[1]),))
    parsed = read_override(text, OverridesParser.create())
    key = parsed.key_or_group
    values = tuple(_values(key, parsed))
    if not values:
        raise ValueError("has no value")
    if twice := list(_given_twice(key, values)):
        raise ValueError(f"{', '.join(twice)}: given more than once; give each value once")
    return Axis(key, values)


def _given_twice(key: str, values: Sequence[Value]) -> Iterator[str]:
    """Yield each value that is there more than once, with all its spellings."""
    spellings: dict[Hashable, list[str]] = {}
    for value in values:
        spellings.setdefault(meaning(key, value.text), []).append(value.text)
    yield from (" and ".join(dict.fromkeys(found)) for found in spellings.values() if len(found) > 1)


def _values(key: str, parsed: HydraOverride) -> Iterator[Value]:
    swept: Any = parsed.value()  # a Glob too, of which Hydra's type does not tell
    if isinstance(swept, IntervalSweep):
        raise ValueError("an interval has no end of values; give range(start,stop,step) or choice(...)")
    if isinstance(swept, ChoiceSweep | RangeSweep) and swept.shuffle:
        raise ValueError("shuffle has another order at each call; leave it out")
    if isinstance(swept, ChoiceSweep) and any(isinstance(one, Sweep | Glob) for one in swept.list):
        raise ValueError("glob, range and choice stand alone, not in a list")
    if isinstance(swept, RangeSweep):
        texts = _range(swept)
    elif isinstance(swept, Glob):
        texts = _globbed(key, swept)
    elif parsed.is_sweep_override():
        texts = [str(text) for text in parsed.sweep_string_iterator()]
    else:
        texts = [parsed.get_value_element_as_str()]
    for text in texts:
        yield Value(text, _plain(text))


def _plain(text: str) -> str:
    value = OverridesParser.create().parse_override(f"key={text}").value()
    return "null" if value is None else str(value)


def _range(swept: RangeSweep) -> list[str]:
    """By decimals: in binary 3 * 0.1 is above 0.3, so that range(0,0.3,0.1) has a value more to Hydra than it says."""
    bounds = (swept.start, swept.stop, swept.step)
    start, stop, step = (Decimal(repr(bound)) for bound in bounds)
    if step == 0 or not (start.is_finite() and stop.is_finite() and step.is_finite()):
        raise ValueError("a range needs finite bounds and a step other than 0")
    count = max(0, math.ceil((stop - start) / step))
    if count > MAX_VALUES:
        raise ValueError(f"{count} values; {MAX_VALUES} at most")
    is_whole = all(isinstance(bound, int) for bound in bounds)
    found = (start + number * step for number in range(count))
    return [str(int(value)) if is_whole else repr(float(value)) for value in found]


def _globbed(key: str, pattern: Glob) -> list[str]:
    if key not in GROUPS:
        raise ValueError(f"glob is for names: {', '.join(GROUPS)}")
    return [str(name) for name in pattern.filter(names(key))]
