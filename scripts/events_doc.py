"""Writes docs/record-events.md and its CSV file from the classes of events; --check says if they are current."""

from __future__ import annotations

import ast
import csv
import inspect
import io
import re
import sys
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from types import ModuleType
from typing import get_type_hints

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from scripts.generated import ROOT, kept
from testbed.core.record.events import (
    gossip,
    kfac,
    kv_transfer,
    machine,
    network,
    note,
    pipeline,
    run,
    server,
    training,
)
from testbed.core.record.events.base import Event, Record, StepEvent, json_name, type_words

PATH, TABLE = ROOT / "docs" / "record-events.md", ROOT / "docs" / "tables" / "events.csv"
_MEANINGS = {
    "t_s": "Emulated seconds since step 1 began.",
    "rank": "Rank of the worker.",
    "step": "Number of the step, from 1.",
    "node": "Name of the node.",
    "from_": "Node at which the direction begins.",
    "to": "Node at which it ends.",
    "round": "Number of the round, from 0.",
    "epoch": "Number of the epoch, from 1.",
    "phase_s": "Emulated seconds by phase.",
}
"""Meanings of fields that are the same in all events."""
_MODULES = (run, network, machine, training, kfac, server, gossip, pipeline, kv_transfer, note)
_TYPES = {
    "list of whole numbers": "numbers",
    "whole number, at least 0 and at most 2^53": "whole number",
    "finite number": "number",
    "list of lists of numbers": "lists of numbers",
    "list of numbers": "numbers",
    "list of texts": "texts",
    "list of objects": "list",
    "true or false": "true/false",
    ", or null": ", null",
}
"""Words of types, and the fewer ones of the CSV file."""
_HEAD = """# Events of a run

Each line of `events.jsonl` is one event: a JSON object with `event`, its name, and `t_s`, emulated seconds since step 1
began, negative before it. Times are emulated. A line of this page says what happened and names the other keys.
`PhaseTimes` and other names with capitals are objects inside events. [events.csv](tables/events.csv) has each key's
type and meaning; a key may be null only where its type says so. Events with * belong to a step: they also have
`rank` and `step`, from 1. Rounds count from 0.

`scripts/events_doc.py` writes this page from [testbed/core/record/events/](../testbed/core/record/events).
"""
_Key = tuple[str, str, str]
"""Name of a key, words of its type, and its meaning."""


def text() -> str:
    """Return the page."""
    return _HEAD + "".join(part for module in _MODULES for part in _section(module))


def table() -> str:
    """Return the CSV file: what each event is, in a row without a key, and a row for each of its keys."""
    found = io.StringIO()
    rows = csv.writer(found, lineterminator="\n")
    rows.writerow(("event", "key", "type", "meaning"))
    for kind in (each for module in _MODULES for each in _classes(module)):
        rows.writerow((_name(kind), "", "", _about(kind)))
        rows.writerows((_name(kind), json_name(name), *rest) for name, *rest in _keys(kind))
    return found.getvalue()


def _section(module: ModuleType) -> Iterator[str]:
    about = " ".join((inspect.getdoc(module) or "").split())
    title = _first_sentence(about)
    yield f"\n## {title.rstrip('.')}\n\n"
    if more := about.removeprefix(title).strip():
        yield f"{more}\n\n"
    for kind in _classes(module):
        implied = ("t_s", "rank", "step") if issubclass(kind, StepEvent) else ("t_s",)
        keys = ", ".join(f"`{json_name(name)}`" for name, _, _ in _keys(kind) if name not in implied)
        star = " *" if issubclass(kind, StepEvent) else ""
        own = "`kind` and fields of its own: see [plug-ins](plug-ins.md)" if kind is note.Note else keys
        yield f"- `{_name(kind)}`{star}: {_first_sentence(_about(kind))}{f' {own}.' if own else ''}\n"


def _classes(module: ModuleType) -> list[type[Record]]:
    return [each for each in vars(module).values() if _is_of(each, module)]


def _name(kind: type[Record]) -> str:
    return kind.event_name if issubclass(kind, Event) else kind.__name__


def _about(kind: type[Record]) -> str:
    return " ".join((inspect.getdoc(kind) or "").partition("\nArgs:")[0].split())


def _keys(kind: type[Record]) -> Iterator[_Key]:
    meanings, annotations = _meanings(kind), get_type_hints(kind, include_extras=True)
    for field in fields(kind) if kind is not note.Note else ():
        meaning = " ".join((meanings.get(field.name) or _MEANINGS[field.name]).split())
        yield field.name, _words(annotations[field.name]), meaning


def _first_sentence(text: str) -> str:
    return re.split(r"(?<=\.)\s+(?=\S)", " ".join(text.split()), maxsplit=1)[0]


def _is_of(each: object, module: ModuleType) -> bool:
    is_public = inspect.isclass(each) and issubclass(each, Record) and not each.__name__.startswith("_")
    return is_public and each.__module__ == module.__name__


def _words(annotation: object) -> str:
    """Return the words of a type, with the name of the object inside it."""
    inner = [each for each in _parts(annotation) if inspect.isclass(each) and issubclass(each, Record)]
    words = type_words(annotation)
    for long, short in _TYPES.items():
        words = words.replace(long, short)
    if not inner:
        return words
    name = inner[0].__name__
    return words.replace("object", name) if words.startswith("object") else f"list of {name}"


def _parts(annotation: object) -> Iterator[object]:
    yield annotation
    for each in getattr(annotation, "__args__", ()):
        yield from _parts(each)


def _meanings(kind: type[Record]) -> dict[str, str]:
    """Return the docstring of each field, those of base classes first; fields without one share the next one's."""
    found: dict[str, str] = {}
    for each in reversed(kind.__mro__):
        if not issubclass(each, Record) or each.__module__ == "testbed.core.record.events.base":
            continue
        (tree,) = ast.parse(inspect.getsource(each)).body
        assert isinstance(tree, ast.ClassDef)
        waiting: list[str] = []
        for statement in tree.body:
            match statement:
                case ast.AnnAssign(target=ast.Name(id=name)):
                    waiting.append(name)
                case ast.Expr(value=ast.Constant(value=str(words))) if waiting:
                    *others, last = waiting
                    found |= dict.fromkeys([last, *(one for one in others if one not in _MEANINGS)], words)
                    waiting = []
    return found


def main() -> int:
    files = {PATH: text(), TABLE: table()}
    faults = list(kept(files, "testbed/core/record/events says", "events_doc.py", check="--check" in sys.argv))
    sys.stderr.writelines(f"{fault}\n" for fault in faults)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
