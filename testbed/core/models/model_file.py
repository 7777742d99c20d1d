"""Tables of models that users bring: JSON, read as it is written, or refused with all its faults, a line each."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from testbed.core.errors import InputError, nearest
from testbed.core.models.model import Layer, Model
from testbed.core.user_files.json_file import read_json
from testbed.core.user_files.text import listed, shown

FORMAT, VERSION = "longhaul-model", 1
_KEYS = ("format", "version", "model", "sample", "source", "layers")
_OPTIONAL = ("buffers_bytes",)
_TEXTS = ("model", "sample", "source")
_MAX_TEXT, _MAX_DIMENSIONS, _MAX_ELEMENTS, _MAX_FLOP, _MAX_FAULTS = 300, 8, 10**12, 1e18, 20


def model_to_json(model: Model) -> dict[str, Any]:
    """Return the file of a table: layers are [name, shapes, FLOPs of one sample's forward]."""
    layers = [[layer.name, [list(shape) for shape in layer.shapes], layer.forward_flop] for layer in model.layers]
    about = {"model": model.name, "sample": model.sample, "source": model.source}
    buffers = {"buffers_bytes": model.buffers_bytes} if model.buffers_bytes else {}
    return {"format": FORMAT, "version": VERSION, **about, **buffers, "layers": layers}


def read_model(path: Path) -> Model:
    """Return the table of a file.

    Raises:
        InputError: The file cannot be read, or holds no table; a line for each fault, with the layer's name.
    """
    data = read_json(path)
    if faults := [f"{path}: {fault}" for fault in model_faults(data)]:
        raise InputError(*listed(faults, path, _MAX_FAULTS))
    layers = tuple(Layer(name, tuple(map(tuple, shapes)), float(flop)) for name, shapes, flop in data["layers"])
    parameters = sum(layer.numel for layer in layers)
    buffers_bytes = data.get("buffers_bytes", 0)
    return Model(data["model"], layers, parameters, None, data["sample"], data["source"], buffers_bytes)


def model_faults(data: Any) -> Iterator[str]:
    """Yield a line for each reason why data of a JSON file are no table."""
    if not isinstance(data, Mapping) or data.get("format") != FORMAT:
        yield f'is no table of a model: its key "format" must be "{FORMAT}"'
        return
    if data.get("version") != VERSION:
        yield f"version={shown(data.get('version'))}: this release reads version {VERSION}"
        return
    for key in data:
        if key not in (known := (*_KEYS, *_OPTIONAL)):
            near = nearest(str(key), known)
            did = f" did you mean {near}?" if near else ""
            yield f"{shown(key)} is no key of a table;{did} known: {', '.join(known)}"
    for key in (key for key in _KEYS if key not in data):
        yield f"{key}: is missing"
    for key in _TEXTS:
        text = data.get(key, "-")
        if not isinstance(text, str) or not text.strip() or len(text) > _MAX_TEXT:
            yield f"{key}={shown(text)}: must be text of 1 to {_MAX_TEXT} characters"
    size = data.get("buffers_bytes", 0)
    if not isinstance(size, int) or isinstance(size, bool) or not 0 <= size <= _MAX_ELEMENTS:
        yield f"buffers_bytes={shown(size)}: must be a whole number from 0 to {_MAX_ELEMENTS:,}"
    if "layers" in data:
        yield from _layer_faults(data["layers"])


def _layer_faults(layers: Any) -> Iterator[str]:
    if not isinstance(layers, list) or not layers:
        yield f"layers={shown(layers)}: must be a list of layers in the order of forward, at least one"
        return
    seen, sound = set[str](), True
    for number, row in enumerate(layers):
        for fault in _row_faults(number, row, seen):
            sound = False
            yield fault
    if not sound:
        return
    elements = sum(math.prod(shape) for _, shapes, _ in layers for shape in shapes)
    if not 1 <= elements <= _MAX_ELEMENTS:
        yield f"layers: have {elements:,} elements in all; must be 1 to {_MAX_ELEMENTS:,}"
    if not sum(flop for *_, flop in layers):
        yield "layers: none has FLOPs; give those of at least one layer, since device=paced splits a step by them"


def _row_faults(number: int, row: Any, seen: set[str]) -> Iterator[str]:
    if not isinstance(row, list) or len(row) != 3 or not isinstance(row[0], str) or not row[0].strip():
        yield f"layers[{number}]={shown(row)}: must be [name, shapes, FLOPs of one sample's forward]"
        return
    name, shapes, flop = row
    if len(name) > _MAX_TEXT:
        yield f"layers[{number}]: {shown(name)}: a name has at most {_MAX_TEXT} characters"
    if name in seen:
        yield f"layers: {name}: is given twice"
    seen.add(name)
    if not isinstance(shapes, list):
        yield f"layers: {name}: {shown(shapes)} are no shapes; must be a list of shapes, [] for none"
    else:
        for shape in (shape for shape in shapes if not _is_shape(shape)):
            wanted = f"a list of 1 to {_MAX_DIMENSIONS} whole numbers from 1"
            yield f"layers: {name}: {shown(shape)} is no shape; must be {wanted}"
    if not isinstance(flop, int | float) or isinstance(flop, bool) or not 0 <= flop <= _MAX_FLOP:
        yield f"layers: {name}: {shown(flop)} are no FLOPs; must be a number from 0 to {_MAX_FLOP:g}"


def _is_shape(value: Any) -> bool:
    return (
        isinstance(value, list)
        and 1 <= len(value) <= _MAX_DIMENSIONS
        and all(isinstance(size, int) and not isinstance(size, bool) and 1 <= size <= _MAX_ELEMENTS for size in value)
    )
