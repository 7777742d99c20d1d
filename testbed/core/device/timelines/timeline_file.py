"""Strict reading of timelines: a file is read as it is written, or refused with all its faults, a line each."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from testbed.core.device.timelines.timeline import FORMAT, PRECISIONS, VERSION, Phases, Timeline, is_host_limited
from testbed.core.errors import InputError, nearest
from testbed.core.user_files.json_file import read_json
from testbed.core.user_files.text import listed, shown

_MAX_TEXT, _MAX_S, _MAX_BATCH, _MAX_DIMENSIONS = 300, 1e6, 1_000_000, 8
_MAX_FAULTS = 20
_SLACK = 1.02
"""Medians of single times may pass the median of their phase by this factor."""
_TEXTS = ("model", "sample", "device", "optimizer")
_PHASES = tuple(Phases.__annotations__)
_KEYS = ("format", "version", *Timeline.__annotations__)


def read_timeline(path: Path) -> Timeline:
    """Return the timeline of a file.

    Raises:
        InputError: The file cannot be read, or holds no timeline; a line for each fault, with the layer's name.
    """
    return timeline_of(read_json(path), str(path))


def timeline_of(data: Any, where: str) -> Timeline:
    """Return the timeline that JSON data hold.

    Args:
        where: Beginning of each fault, such as the path of the file.

    Raises:
        InputError: They hold none; a line for each fault.
    """
    if faults := [f"{where}: {fault}" for fault in _faults(data)]:
        raise InputError(*listed(faults, where, _MAX_FAULTS))
    fields = {key: value for key, value in data.items() if key not in ("format", "version")}
    return Timeline(
        **{
            **fields,
            "phases_s": Phases(**data["phases_s"]),
            "hooked_phases_s": Phases(**data["hooked_phases_s"]),
            "forward_start_s": tuple((name, kind, at_s) for name, kind, at_s in data["forward_start_s"]),
            "gradient_ready_s": tuple((name, tuple(shape), at_s) for name, shape, at_s in data["gradient_ready_s"]),
            "without_start": tuple(data["without_start"]),
        }
    )


def is_timeline(data: Any) -> bool:
    """Return True for JSON data that say they are a timeline, even a faulty one."""
    return isinstance(data, Mapping) and "format" in data


def _faults(data: Any) -> Iterator[str]:
    if not isinstance(data, Mapping) or data.get("format") != FORMAT:
        yield f'is no timeline: its key "format" must be "{FORMAT}"'
        return
    if data.get("version") != VERSION:
        yield f"version={shown(data.get('version'))}: this release reads version {VERSION}"
        return
    yield from _key_faults(data, _KEYS, "")
    for key in (key for key in _TEXTS if key in data):
        yield from _text_faults(key, data[key])
    if "precision" in data and data["precision"] not in PRECISIONS:
        yield f"precision={shown(data['precision'])}: must be one of {', '.join(PRECISIONS)}"
    if "batch_size" in data and not _is_count(data["batch_size"], _MAX_BATCH):
        yield f"batch_size={shown(data['batch_size'])}: must be a whole number from 1 to {_MAX_BATCH:,}"
    if "host_limited" in data and not isinstance(data["host_limited"], bool):
        yield f"host_limited={shown(data['host_limited'])}: must be true or false"
    yield from _mapping_faults(data)
    yield from _phase_faults(data)
    yield from _layer_faults(data)


def _key_faults(data: Mapping[str, Any], known: Iterable[str], where: str) -> Iterator[str]:
    known = tuple(known)
    for key in data:
        if key not in known:
            near = nearest(str(key), known)
            did = f" did you mean {near}?" if near else ""
            yield f"{where}{shown(key)} is no key of a timeline;{did} known: {', '.join(known)}"
    for key in known:
        if key not in data:
            yield f"{where}{key}: is missing"


def _text_faults(where: str, value: Any) -> Iterator[str]:
    if not isinstance(value, str) or not value.strip() or len(value) > _MAX_TEXT:
        yield f"{where}={shown(value)}: must be text of 1 to {_MAX_TEXT} characters"


def _mapping_faults(data: Mapping[str, Any]) -> Iterator[str]:
    for key in ("software", "provenance"):
        value = data.get(key, {"": ""})
        if not isinstance(value, Mapping) or not value:
            yield f"{key}={shown(value)}: must be names with values, at least one"
        elif key == "software":
            for name, text in value.items():
                if name or text:
                    yield from _text_faults(f"{key}.{name}", text)


def _phase_faults(data: Mapping[str, Any]) -> Iterator[str]:
    sound: dict[str, Phases] = {}
    for key in (key for key in ("phases_s", "hooked_phases_s") if key in data):
        value = data[key]
        if not isinstance(value, Mapping):
            yield f"{key}={shown(value)}: must have {', '.join(_PHASES)}"
            continue
        faults = list(_key_faults(value, _PHASES, f"{key}."))
        for phase in _PHASES:
            if phase in value and (not _is_time(value[phase]) or (value[phase] == 0 and phase != "optimizer")):
                faults.append(f"{key}.{phase}={shown(value[phase])}: must be seconds above 0, below {_MAX_S:g}")
        yield from faults
        if not faults:
            sound[key] = Phases(**value)
    free_s = data.get("free_running_step_s", 1.0)
    if not _is_time(free_s) or free_s == 0:
        yield f"free_running_step_s={shown(free_s)}: must be seconds above 0, below {_MAX_S:g}"
    elif "hooked_phases_s" in sound and isinstance(data.get("host_limited"), bool):
        limited = is_host_limited(sound["hooked_phases_s"], free_s)
        if limited != data["host_limited"] and "free_running_step_s" in data:
            ratio = sound["hooked_phases_s"].step_s / free_s
            yield (
                f"host_limited={str(data['host_limited']).lower()}: must be {str(limited).lower()}, since a step with"
                f" hooks took {ratio:.2f} times a free-running one"
            )


def _layer_faults(data: Mapping[str, Any]) -> Iterator[str]:
    hooked = data.get("hooked_phases_s")
    most = hooked if isinstance(hooked, Mapping) else {}
    starts = list[str]()
    for key, width, phase in (("forward_start_s", 3, "forward"), ("gradient_ready_s", 3, "backward")):
        rows = data.get(key, [])
        if not isinstance(rows, list) or (not rows and key in data):
            yield f"{key}={shown(rows)}: must be a list of layers, at least one"
            continue
        faults = [fault for number, row in enumerate(rows) for fault in _row_faults(key, number, row, width)]
        yield from faults
        if faults:
            continue
        yield from _order_faults(key, rows, most.get(phase))
        names = [row[0] for row in rows]
        if key == "forward_start_s":
            starts = names
        else:
            yield from _name_faults(data, starts, names)


def _row_faults(key: str, number: int, row: Any, width: int) -> Iterator[str]:
    if not isinstance(row, list) or len(row) != width or not isinstance(row[0], str) or not row[0]:
        yield f"{key}[{number}]={shown(row)}: must be [name, {'shape' if key[0] == 'g' else 'kind'}, seconds]"
        return
    where = f"{key}: {row[0]}"
    if not _is_time(row[2]):
        yield f"{where}: {shown(row[2])} is no time; must be seconds from 0, below {_MAX_S:g}"
    if key == "forward_start_s":
        yield from _text_faults(f"{where}: kind", row[1])
    elif not _is_shape(row[1]):
        yield f"{where}: {shown(row[1])} is no shape; must be a list of 1 to {_MAX_DIMENSIONS} whole numbers from 1"


def _order_faults(key: str, rows: Sequence[Sequence[Any]], most_s: Any) -> Iterator[str]:
    phase = "forward" if key == "forward_start_s" else "backward"
    for (before, _, before_s), (name, _, at_s) in pairwise(rows):
        if at_s < before_s:
            yield (
                f"{key}: {name}: {at_s:g} s is before the {before_s:g} s of {before}, which is listed before it;"
                f" times must not decrease in the order of {phase}"
            )
    if _is_time(most_s) and rows[-1][2] > _SLACK * most_s:
        yield f"{key}: {rows[-1][0]}: {rows[-1][2]:g} s is after the end of {phase}, hooked_phases_s.{phase}={most_s:g}"


def _name_faults(data: Mapping[str, Any], starts: Sequence[str], parameters: Sequence[str]) -> Iterator[str]:
    seen = set[str]()
    for name in parameters:
        if name in seen:
            yield f"gradient_ready_s: {name}: is given twice; a gradient is ready once"
        seen.add(name)
    unseen = data.get("without_start", [])
    if not isinstance(unseen, list) or not all(isinstance(name, str) for name in unseen):
        yield f"without_start={shown(unseen)}: must be a list of names of modules"
        return
    owners = list(dict.fromkeys(name.rpartition(".")[0] for name in parameters))
    if starts:
        for owner in owners:
            if owner not in unseen and owner not in starts:
                yield (
                    f"forward_start_s: {shown(owner)} is missing, though it has gradients; give the beginning of its"
                    " forward, or name it in without_start if it was not seen"
                )
    for name in unseen:
        if name in starts or name not in owners:
            why = "has a start" if name in starts else "has no gradients"
            yield f"without_start: {shown(name)} {why}; remove it"


def _is_time(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < _MAX_S  # NaN neither


def _is_count(value: Any, most: float = math.inf) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= most


def _is_shape(value: Any) -> bool:
    return isinstance(value, list) and 1 <= len(value) <= _MAX_DIMENSIONS and all(map(_is_count, value))
