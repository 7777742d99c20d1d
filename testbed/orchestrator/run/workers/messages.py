"""Check of what a worker sends: it runs a user's code, and nothing that it says is believed.

A worker may report its own steps. It may not speak for the kernel's counters, for another rank, or for the end of the
run. pydantic reads the annotations of the events (docs/decisions/0040).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, get_type_hints

from pydantic import TypeAdapter, ValidationError

from testbed.core.record import events
from testbed.core.record.events.base import (
    Count,
    Number,
    Record,
    StepEvent,
    WorkerEvent,
    field_name,
    json_name,
    type_words,
)

Message = dict[str, Any]
"""One line of JSON."""
_WORKERS = {name: kind for name, kind in events.KINDS.items() if issubclass(kind, WorkerEvent)}
_READERS: dict[type[Record], TypeAdapter[Record]] = {}


@dataclass(frozen=True, kw_only=True)
class _Stamp(Record):
    t_s: Number
    step: Count


def checked_message(message: Message, rank: int) -> Message:
    """Return a worker's message with the rank of the channel that it came by.

    Raises:
        ValueError: No worker may send it, or a field is missing, unknown or out of bounds; names the event and the
            field.
    """
    name = message.get("event")
    kind = _WORKERS.get(name) if isinstance(name, str) else None
    if kind is None:
        raise ValueError(f"an event {name!r:.80}, which no worker sends")
    message = {**message, "rank": rank}
    fields = {key: value for key, value in message.items() if key != "event"}
    if issubclass(kind, StepEvent):
        del fields["rank"]
        stamp: Message = {key: fields.pop(key) for key in ("t_s", "step") if key in fields}
        _check(_Stamp, stamp, kind.event_name)
    if kind is not events.note.Note:
        _check(kind, fields, kind.event_name)
    elif faults := events.note.note_faults(fields):
        raise ValueError(faults[0])
    return message


def _check(kind: type[Record], fields: Mapping[str, Any], event: str) -> None:
    if kind not in _READERS:
        _READERS[kind] = TypeAdapter(kind)  # some milliseconds, for a kind that comes
    try:
        _READERS[kind].validate_json(json.dumps({field_name(key): value for key, value in fields.items()}))
    except ValidationError as error:
        where = error.errors(include_url=False, include_context=False)[0]["loc"]
        key = json_name(str(where[0])) if where else _not_unicode(fields)
        known = {json_name(name): each for name, each in get_type_hints(kind, include_extras=True).items()}
        given = f"{key}={fields[key]!r:.80}" if key in fields else f"no {key}"
        wanted = f"must be {type_words(known[key])}" if key in known else "no such field"
        raise ValueError(f"{event!r} with {given}: {wanted}") from None


def _not_unicode(fields: Mapping[str, Any]) -> str:
    """Return the field with half of a surrogate pair, which Python's JSON reads and no other program does."""
    for name, value in fields.items():
        try:
            json.dumps(value, ensure_ascii=False).encode()
        except UnicodeEncodeError:
            return name
    return "?"
