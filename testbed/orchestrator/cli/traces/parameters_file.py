"""Reading of the file that experiments/scripts/note_parameters.py writes: parameters in module order."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from testbed.core.device.timelines.timeline import PRECISIONS
from testbed.core.errors import InputError
from testbed.core.user_files.json_file import read_json
from testbed.core.user_files.text import listed, shown

FORMAT, VERSION = "longhaul-parameters", 1
_TEXTS = ("model", "sample", "device", "torch")
_KEYS = ("format", "version", *_TEXTS, "batch_size", "precision", "kinds", "parameters")
_MAX_TEXT, _MAX_BATCH, _MAX_FAULTS = 300, 1_000_000, 20


@dataclass(frozen=True, kw_only=True)
class Parameter:
    """One parameter of a model, under the first of its names."""

    name: str
    shape: tuple[int, ...]
    learns: bool
    has_gradient: bool
    """True if it had a gradient when it was noted."""

    @property
    def module(self) -> str:
        return self.name.rpartition(".")[0]


@dataclass(frozen=True, kw_only=True)
class Noted:
    """A model whose training was traced."""

    model: str
    sample: str
    device: str
    torch: str
    batch_size: int
    precision: str
    kinds: Mapping[str, str]
    """Classes of modules, by name."""
    parameters: tuple[Parameter, ...]
    """In module order, tied ones once."""

    @property
    def learning(self) -> tuple[Parameter, ...]:
        """Parameters whose gradients a step makes: where none had one when it was noted, all that learn."""
        were_seen = any(parameter.has_gradient for parameter in self.parameters)
        return tuple(one for one in self.parameters if one.learns and (one.has_gradient or not were_seen))

    @property
    def unused(self) -> tuple[Parameter, ...]:
        """Parameters that learn, and had no gradient while others had one."""
        learning = set(self.learning)
        return tuple(one for one in self.parameters if one.learns and one not in learning)


def read_noted(path: Path) -> Noted:
    """Return what a file says.

    Raises:
        InputError: The file cannot be read, or is another one; a line for each fault, with the parameter's name.
    """
    data = read_json(path)
    if faults := [f"{path}: {fault}" for fault in _faults(data)]:
        raise InputError(*listed(faults, path, _MAX_FAULTS))
    parameters = tuple(
        Parameter(name=name, shape=tuple(shape), learns=learns, has_gradient=has_gradient)
        for name, shape, learns, has_gradient, first in data["parameters"]
        if name == first
    )
    texts = {key: data[key] for key in (*_TEXTS, "batch_size", "precision", "kinds")}
    return Noted(**texts, parameters=parameters)


def _faults(data: Any) -> Iterator[str]:
    if not isinstance(data, Mapping) or data.get("format") != FORMAT or data.get("version") != VERSION:
        yield f'is not what note_parameters writes: "format" must be "{FORMAT}" and "version" {VERSION}'
        return
    for key in (key for key in _KEYS if key not in data):
        yield f"{key}: is missing; give it to note_parameters"
    for key in (key for key in data if key not in _KEYS):
        yield f"{shown(key)} is no key of it; known: {', '.join(_KEYS)}"
    for key in _TEXTS:
        text = data.get(key, "-")
        if not isinstance(text, str) or not text.strip() or len(text) > _MAX_TEXT:
            yield f"{key}={shown(text)}: must be text of 1 to {_MAX_TEXT} characters"
    size = data.get("batch_size", 1)
    if not isinstance(size, int) or isinstance(size, bool) or not 1 <= size <= _MAX_BATCH:
        yield f"batch_size={shown(size)}: must be a whole number from 1 to {_MAX_BATCH:,}"
    if data.get("precision", PRECISIONS[0]) not in PRECISIONS:
        yield f"precision={shown(data['precision'])}: must be one of {', '.join(PRECISIONS)}"
    kinds = data.get("kinds", {})
    if not isinstance(kinds, Mapping) or not all(isinstance(kind, str) and kind for kind in kinds.values()):
        yield f"kinds={shown(kinds)}: must be classes by the names of modules"
    rows = data.get("parameters", [None])
    if not isinstance(rows, list) or not rows:
        yield f"parameters={shown(rows)}: must be a list, at least one"
    elif "parameters" in data:
        yield from _row_faults(rows)


def _row_faults(rows: list[Any]) -> Iterator[str]:
    names = set[str]()
    for number, row in enumerate(rows):
        if not isinstance(row, list) or len(row) != 5 or not isinstance(row[0], str) or not row[0]:
            yield f"parameters[{number}]={shown(row)}: must be [name, shape, learns, has a gradient, first name]"
            continue
        name, shape, learns, has_gradient, first = row
        if name in names:
            yield f"parameters: {name}: is given twice"
        names.add(name)
        if not isinstance(shape, list) or not all(
            isinstance(n, int) and not isinstance(n, bool) and n > 0 for n in shape
        ):
            yield f"parameters: {name}: {shown(shape)} is no shape; must be a list of whole numbers from 1"
        if not isinstance(learns, bool) or not isinstance(has_gradient, bool):
            yield f"parameters: {name}: whether it learns and has a gradient must be true or false"
        if not isinstance(first, str) or first not in names:
            yield f"parameters: {name}: is tied to {shown(first)}, which is not listed before it"
