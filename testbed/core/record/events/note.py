"""Event for plug-ins outside this tree."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from testbed.core.record.events.base import StepEvent

MAX_FIELDS = 32
"""Fields of one note."""
MAX_ENTRIES = 10_000
"""Entries of one list in a note."""
_MAX_TEXT = 10_000
_RESERVED = ("event", "kind", "t_s", "rank", "step")
_NAME = re.compile(r"[a-zA-Z]\w{0,79}", re.ASCII)

Value = float | int | str | bool | None


@dataclass(frozen=True)
class Note(StepEvent, name="note"):
    """Values that a plug-in puts into the record: `context.record(Note("mine", {"share": 0.5}))`.

    Its line is `{..., "event": "note", "kind": "mine", "share": 0.5}`. Reports show one table for each kind. Metrics
    and the verdict ignore it.

    Args:
        kind: Name of the table: letters, digits and underscores.
        fields: Columns by name, at most 32: finite numbers, texts, booleans, None, or flat lists of at most 10,000 of
            these. Put units into the names, such as `wait_s`.

    Raises:
        ValueError: A name or a value is not one of these; with a line for each.
    """

    kind: str
    fields: Mapping[str, Value | Sequence[Value]]

    def __post_init__(self) -> None:
        if faults := note_faults({"kind": self.kind, **self.fields}):
            raise ValueError("\n".join(faults))

    def to_json(self) -> dict[str, Any]:
        own = {name: list(one) if isinstance(one, list | tuple) else one for name, one in self.fields.items()}
        return {"event": self.event_name, "kind": self.kind, **own}


def note_faults(note: Mapping[str, Any]) -> list[str]:
    """Return what is wrong with a note's kind and fields, one line each; [] if nothing is."""
    kind, fields = note.get("kind"), {name: value for name, value in note.items() if name != "kind"}
    faults = [] if _is_name(kind) else [f"note: kind={kind!r:.80}: must be a name of letters, digits and underscores"]
    if len(fields) > MAX_FIELDS:
        faults.append(f"note {kind!r:.80}: {len(fields)} fields; at most {MAX_FIELDS} are kept")
    for name, value in fields.items():
        if not _is_name(name) or name in _RESERVED:
            faults.append(
                f"note {kind!r:.80}: field {name!r:.80}: must be a name of letters, digits and underscores, none of"
                f" {', '.join(_RESERVED)}"
            )
        elif not _is_value(value):
            faults.append(
                f"note {kind!r:.80}: {name}={value!r:.80}: must be a finite number, a text of at most {_MAX_TEXT}"
                f" characters, true, false, null, or a list of at most {MAX_ENTRIES} of these"
            )
    return faults


def _is_name(name: object) -> bool:
    return isinstance(name, str) and _NAME.fullmatch(name) is not None


def _is_value(value: object) -> bool:
    if isinstance(value, list | tuple):
        return len(value) <= MAX_ENTRIES and all(map(_is_single, value))
    return _is_single(value)


def _is_single(value: object) -> bool:
    if value is None or isinstance(value, bool):
        return True
    if isinstance(value, int):
        return -(2**63) <= value < 2**63
    return math.isfinite(value) if isinstance(value, float) else isinstance(value, str) and len(value) <= _MAX_TEXT
