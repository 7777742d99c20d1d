"""Writes docs/record-events.md from the classes of events, or with --check says whether it is up to date."""

from __future__ import annotations

import ast
import inspect
import sys
from collections.abc import Iterator
from dataclasses import fields
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
    "list of whole numbers": "integers",
    "whole number, at least 0": "integer",
    "finite number": "number",
    "list of lists of numbers": "lists of numbers",
    "list of numbers": "numbers",
    "list of texts": "texts",
    "list of objects": "list",
    ", or null": " or null",
}
"""Words of types, and the fewer ones of the page."""
_HEAD = """# Events of a run

Each line of `events.jsonl` is one event: a JSON object with `event`, its name, and `t_s`, emulated seconds since step 1
began, negative before it. Events marked *after a step* also have `rank` and `step`. Integers are at least 0. "Also"
names keys of this list:

{common}

`scripts/events_doc.py` writes this page from the classes in
[testbed/core/record/events/](../testbed/core/record/events).
"""


def text() -> str:
    """Return the page."""
    common = "\n".join(f"- `{json_name(name)}`: {meaning}" for name, meaning in _MEANINGS.items())
    return _HEAD.format(common=common) + "".join(part for module in _MODULES for part in _section(module))


def _section(module: ModuleType) -> Iterator[str]:
    classes = [each for each in vars(module).values() if _is_of(each, module)]
    about = inspect.getdoc(module) or ""
    yield f"\n## {about.splitlines()[0].rstrip('.')}\n"
    if more := " ".join(about.splitlines()[1:]).strip():
        yield f"\n{more}\n"
    for kind in classes:
        if kind is note.Note:
            yield "\n### `note`\n\n*After a step.* Has `kind` and fields of its own: see [plug-ins](plug-ins.md).\n"
            continue
        named = issubclass(kind, Event)
        yield f"\n### `{kind.event_name}`\n" if named else f"\n### Object `{kind.__name__}`\n"
        when = "*After a step.* " if issubclass(kind, StepEvent) else ""
        yield f"\n{when}{' '.join((inspect.getdoc(kind) or '').split())}\n\n"
        yield from _keys(kind)


def _keys(kind: type[Record]) -> Iterator[str]:
    """Yield a line for each key, and one with the names of those that mean the same in all events."""
    meanings, annotations = _meanings(kind), get_type_hints(kind, include_extras=True)
    names = [field.name for field in fields(kind)]
    common = [name for name in names if (meanings.get(name) or _MEANINGS.get(name)) == _MEANINGS.get(name)]
    for name in names:
        if name not in common:
            yield f"- `{json_name(name)}` ({_words(annotations[name])}): {meanings[name]}\n"
    if common:
        yield f"- Also {', '.join(f'`{json_name(name)}`' for name in common)}.\n"


def _is_of(each: object, module: ModuleType) -> bool:
    is_public = inspect.isclass(each) and issubclass(each, Record) and not each.__name__.startswith("_")
    return is_public and each.__module__ == module.__name__


def _words(annotation: object) -> str:
    inner = [each for each in _parts(annotation) if inspect.isclass(each) and issubclass(each, Record)]
    words = type_words(annotation)
    for long, short in _TYPES.items():
        words = words.replace(long, short)
    return f"{words} of `{inner[0].__name__}`" if inner else words


def _parts(annotation: object) -> Iterator[object]:
    yield annotation
    for each in getattr(annotation, "__args__", ()):
        yield from _parts(each)


def _meanings(kind: type[Record]) -> dict[str, str]:
    """Return the docstring of each field, those of base classes first."""
    found: dict[str, str] = {}
    for each in reversed(kind.__mro__):
        if not issubclass(each, Record) or each.__module__ == "testbed.core.record.events.base":
            continue
        (tree,) = ast.parse(inspect.getsource(each)).body
        assert isinstance(tree, ast.ClassDef)
        for statement, after in zip(tree.body, [*tree.body[1:], None], strict=True):
            if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
                is_text = isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant)
                words = str(after.value.value) if is_text else ""  # type: ignore[union-attr]
                found[statement.target.id] = " ".join(words.split())
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
