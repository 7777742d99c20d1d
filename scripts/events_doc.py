"""Writes docs/record-events.md from the classes of events, or with --check says whether it is up to date."""

from __future__ import annotations

import ast
import inspect
import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import fields
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from types import ModuleType
from typing import get_type_hints

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

PATH = Path(__file__).resolve().parents[1] / "docs" / "record-events.md"
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
    "whole number, at least 0 and at most 2^53": "number",
    "finite number": "number",
    "list of lists of numbers": "lists of numbers",
    "list of numbers": "numbers",
    "list of texts": "texts",
    "list of objects": "list",
    "true or false": "true/false",
    ", or null": ", null",
}
"""Words of types, and the fewer ones of the page."""
_HEAD = """# Events of a run

Each line of `events.jsonl` is one event: a JSON object with `event`, its name, and `t_s`, emulated seconds since step 1
began, negative before it. Times are emulated. A value is a number, a text or a flag, as its meaning says; other types
and null are named. Events with * belong to a step: they also have `rank` and `step`. *Also* names keys of this list, or
of the one at the head of a section:

{common}

`scripts/events_doc.py` writes this page from [testbed/core/record/events/](../testbed/core/record/events), whose
docstrings say more.
"""
_Meaning = tuple[str, str, str]
"""Name of a key, words of its type, and its meaning."""


def text() -> str:
    """Return the page."""
    common = "\n".join(f"- `{json_name(name)}`: {meaning}" for name, meaning in _MEANINGS.items())
    return _HEAD.format(common=common) + "".join(part for module in _MODULES for part in _section(module))


def _section(module: ModuleType) -> Iterator[str]:
    classes = [each for each in vars(module).values() if _is_of(each, module)]
    about = " ".join((inspect.getdoc(module) or "").split())
    title = _first_sentence(about)
    yield f"\n## {title.rstrip('.')}\n"
    if more := about.removeprefix(title).strip():
        yield f"\n{more}\n"
    keys = {kind: list(_keys(kind)) for kind in classes if kind is not note.Note}
    counts = Counter(key for several in keys.values() for key in several)
    shared = [key for key, count in counts.items() if count > 1 and _MEANINGS.get(key[0]) != key[2]]
    yield from ["\n", *_lines(shared)] if shared else ()
    for kind in classes:
        if kind is note.Note:
            yield "\n### `note` *\n\n`kind` and fields of its own: see [plug-ins](plug-ins.md).\n"
            continue
        title = f"`{kind.event_name}`" if issubclass(kind, Event) else f"Object `{kind.__name__}`"
        yield f"\n### {title}{' *' if issubclass(kind, StepEvent) else ''}\n"
        also = [key for key in keys[kind] if _MEANINGS.get(key[0]) == key[2] or key in shared]
        own = [key for key in keys[kind] if key not in also]
        yield f"\n{_first_sentence(inspect.getdoc(kind) or '')}{f' Also {_names(also)}.' if also else ''}\n"
        yield from ["\n", *_lines(own)] if own else ()


def _lines(keys: Iterable[_Meaning]) -> Iterator[str]:
    """Yield a line for each meaning, with all keys next to each other that have it."""
    for (words, meaning), several in groupby(keys, key=itemgetter(1, 2)):
        yield f"- {_names(several)}{f' ({words})' if words else ''}: {meaning}\n"


def _names(keys: Iterable[_Meaning]) -> str:
    return ", ".join(f"`{json_name(name)}`" for name, _, _ in keys)


def _keys(kind: type[Record]) -> Iterator[_Meaning]:
    meanings, annotations = _meanings(kind), get_type_hints(kind, include_extras=True)
    for field in fields(kind):
        meaning = _first_sentence(meanings.get(field.name) or _MEANINGS[field.name])
        yield field.name, _words(annotations[field.name]), meaning


def _first_sentence(text: str) -> str:
    return re.split(r"(?<=\.)\s+(?=\S)", " ".join(text.split()), maxsplit=1)[0]


def _is_of(each: object, module: ModuleType) -> bool:
    is_public = inspect.isclass(each) and issubclass(each, Record) and not each.__name__.startswith("_")
    return is_public and each.__module__ == module.__name__


def _words(annotation: object) -> str:
    """Return the words of a type; none for a number, a text or a flag."""
    inner = [each for each in _parts(annotation) if inspect.isclass(each) and issubclass(each, Record)]
    words = type_words(annotation)
    for long, short in _TYPES.items():
        words = words.replace(long, short)
    words = re.sub(r"^(number|text|true/false)\b(?! by)(, )?", "", words)
    if not inner:
        return words
    name = f"`{inner[0].__name__}`"
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
    if "--check" in sys.argv:
        if not PATH.exists() or PATH.read_text() != text():
            sys.stderr.write(
                "docs/record-events.md is not what testbed/core/record/events says: run scripts/events_doc.py\n"
            )
            return 1
        return 0
    PATH.write_text(text())
    return 0


if __name__ == "__main__":
    sys.exit(main())
