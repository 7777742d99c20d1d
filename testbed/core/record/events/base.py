"""Base classes of the events in `events.jsonl`, and the types of their fields.

An event is a frozen dataclass. The docstring of a field is its documentation, its annotation what the orchestrator
checks, with pydantic (docs/decisions/0040). `event.to_json()` is the line, so the order of the fields is the order of
the keys.
"""

from __future__ import annotations

import dataclasses
import keyword
import types
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, TypeVar

E = TypeVar("E", bound="Event")
"""A kind of event; `Self` is of Python 3.11, and the wheel longhaul-compressors goes back to 3.10."""

MAX_TEXT = 100_000
"""Characters of one text in an event."""
MAX_ENTRIES = 100_000
"""Entries of one list or mapping in an event."""


@dataclass(frozen=True)
class Limits:
    """Bounds of a value, by the names that pydantic's schemas have for them; the core imports no package."""

    bounds: tuple[tuple[str, int], ...]

    def __get_pydantic_core_schema__(self, source: Any, handler: Callable[[Any], dict[str, Any]]) -> dict[str, Any]:
        return {**handler(source), **dict(self.bounds)}


@dataclass(frozen=True)
class Finite:
    """Bound of numbers: neither NaN nor infinity, nor an integer that no float holds."""

    def __get_pydantic_core_schema__(self, _source: Any, _handler: Any) -> dict[str, Any]:
        whole = {"type": "int", "strict": True, "ge": -(10**308), "le": 10**308}
        return {"type": "union", "choices": [whole, {"type": "float", "strict": True, "allow_inf_nan": False}]}


SHORT = Limits((("max_length", MAX_TEXT),))
"""Bound of texts."""
FEW = Limits((("max_length", MAX_ENTRIES),))
"""Bound of lists and mappings."""

Count = Annotated[int, Limits((("ge", 0), ("le", 2**53)))]
"""Whole number, at least 0 and at most 2^53: above, a float64, which metrics are made of, leaves whole numbers out."""
Number = Annotated[int | float, Finite()]
"""Finite number."""
Text = Annotated[str, SHORT]
Counts = Annotated[list[Count], FEW]
Numbers = Annotated[list[Number], FEW]
Texts = Annotated[list[Text], FEW]
Matrix = Annotated[list[Numbers], FEW]
"""Matrix over ranks. Entry [i][j] belongs to the way from rank i to rank j."""
NamedNumbers = Annotated[dict[Text, Number], FEW]
Reasons = Annotated[dict[Text, Text], FEW]
"""Reasons by name."""
_WORDS: dict[Any, str] = {
    Count: "whole number, at least 0 and at most 2^53",
    Number: "finite number",
    Text: "text",
    bool: "true or false",
    Counts: "list of whole numbers",
    Numbers: "list of numbers",
    Texts: "list of texts",
    Matrix: "list of lists of numbers",
    NamedNumbers: "numbers by name",
    Reasons: "texts by name",
}

_STRICT = {"strict": True, "extra": "forbid"}
"""Settings of each class that pydantic reads: no value is converted, no field may be added."""


@dataclass(frozen=True, kw_only=True)
class Record:
    """Object inside an event."""

    __pydantic_config__: ClassVar[Mapping[str, Any]] = _STRICT

    def to_json(self) -> dict[str, Any]:
        """Return the object as JSON values, its keys in the order of the fields."""
        return {json_name(field.name): _plain(getattr(self, field.name)) for field in dataclasses.fields(self)}


@dataclass(frozen=True, kw_only=True)
class Event(Record):
    """One line of `events.jsonl`."""

    event_name: ClassVar[str]
    """Value of the key `event`."""
    kinds: ClassVar[dict[str, type[Event]]] = {}
    """Every class of events by its name."""

    def __init_subclass__(cls, *, name: str | None = None, **rest: Any) -> None:
        """Enter the class into `kinds`, unless it is a base class, which has no name."""
        super().__init_subclass__(**rest)
        if name is not None:
            cls.event_name = name
            cls.kinds[name] = cls

    @classmethod
    def from_json(cls: type[E], line: Mapping[str, Any]) -> E:
        """Return the event of a line that one of Longhaul's own processes wrote; its values are not checked.

        Raises:
            TypeError: A key is missing or unknown.
        """
        return cls(**{field_name(key): value for key, value in line.items() if key != "event"})

    def to_json(self) -> dict[str, Any]:
        return {"event": self.event_name, **super().to_json()}


@dataclass(frozen=True, kw_only=True)
class WorkerEvent(Event):
    """Event that a worker may send, of itself; the orchestrator adds `rank` if it is missing."""


@dataclass(frozen=True, kw_only=True)
class StepEvent(WorkerEvent):
    """Event that belongs to a step. The training loop adds when it was sent, by which rank, and in which step."""

    order_in_step: ClassVar[int] = 0
    """Place among the events of one step; those of one place are in the order in which they were recorded."""

    def stamped(self, t_s: float, rank: int, step: int) -> dict[str, Any]:
        """Return the line of the event.

        Args:
            t_s: End of the step, emulated seconds since step 1 began.
            step: Number of the step, from 1; 0 before the first one.
        """
        return {"t_s": t_s, "rank": rank, "step": step, **self.to_json()}


def json_name(field: str) -> str:
    """Return the key of a field: its name, without the underscore that keeps `from_` off Python's keyword."""
    return field.rstrip("_")


def field_name(key: str) -> str:
    """Return the field of a key, the reverse of `json_name`."""
    return f"{key}_" if keyword.iskeyword(key) else key


def type_words(annotation: Any) -> str:
    """Return what a field of this annotation holds, in words."""
    if typing.get_origin(annotation) in (typing.Union, types.UnionType) and annotation not in _WORDS:
        words = [type_words(one) for one in typing.get_args(annotation) if one is not type(None)]
        return ", or ".join([*words, "null"])
    if annotation in _WORDS:
        return _WORDS[annotation]
    return "list of objects" if "list[" in str(annotation) else "object"


def _plain(value: Any) -> Any:
    if isinstance(value, Record):
        return value.to_json()
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value
