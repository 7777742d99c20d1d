"""Plug-ins that a user gives by the path of a YAML file, as in `compressor=./signs.yaml`, and where their classes lie.

Such a file holds what ours in experiments/conf hold: `_target_` and its parameters, of a workload `run:` too.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from testbed.core.errors import InputError, raise_input_faults
from testbed.core.spec.redirects import KEY, PACKAGES
from testbed.orchestrator.config.user_files.yaml_reader import name_faults, read_yaml
from testbed.orchestrator.machine.clone import CLONE


def read_part_file(group: str, path: Path, ours: Mapping[str, str]) -> dict[str, Any]:
    """Return the content of a plug-in's file.

    Args:
        ours: Targets of the plug-ins of this repository in the same group, by name.

    Raises:
        InputError: It cannot be read, names no class, or cannot lend a run its name; one line a fault.
    """
    where = f"{group}={path}"
    faults = list(name_faults(path, where, group))
    try:
        document = read_yaml(path, where)
    except InputError as error:
        raise InputError(*faults, *error.faults) from None
    values = document.plain((KEY,))
    target = values.get(KEY) if isinstance(values, dict) else None
    if not isinstance(target, str):
        faults.append(f"{where}, line 1: must hold _target_, as in '_target_: signs.Signs', and parameters")
    elif ours.get(path.stem, target) != target:
        faults.append(
            f"{where}: {path.stem} is the name of {ours[path.stem]}, and tables would show both as one; rename the file"
        )
    raise_input_faults(faults)
    return dict(values)


def merged(file: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of a file with those of the command line in their places, however deep."""
    found = dict(file)
    for key, value in given.items():
        before = found.get(key)
        both = isinstance(before, Mapping) and isinstance(value, Mapping)
        found[key] = merged(before, value) if both else value  # type: ignore[arg-type]
    return found


def with_files(
    values: Mapping[Any, Any], paths: Mapping[str, str], files: Mapping[str, Mapping[str, Any]]
) -> dict[str, Any]:
    """Return a configuration with what Hydra has not seen.

    Args:
        values: Configuration as Hydra composed it.
        paths: Paths that the user gave, by key, such as `workload.script`.
        files: Contents of plug-ins' files, by group.
    """
    found = {str(key): value for key, value in values.items()}
    for key, path in paths.items():
        found = merged(found, _at(key.split("."), path))
    return {**found, **{group: merged(file, found.get(group) or {}) for group, file in files.items()}}


def _at(keys: Sequence[str], value: Any) -> dict[str, Any]:
    """Return `value` in mappings of one key each."""
    return {keys[0]: value if len(keys) == 1 else _at(keys[1:], value)}


def folders_of(target: str, params: Mapping[str, Any], file: Path | None) -> tuple[str, ...]:
    """Return the folders in which the modules of a part are looked for; none if all its classes are ours.

    Args:
        file: YAML file that names the class; its folder comes before the current one.
    """
    if all(one.partition(".")[0] in PACKAGES for one in (target, *targets_in(params))):
        return ()
    places = [*([file.parent.absolute()] if file else []), _here()]
    return tuple(dict.fromkeys(os.path.normpath(place) for place in places if place not in (None, CLONE)))


def _here() -> Path | None:
    try:
        return Path.cwd()
    except FileNotFoundError:  # it was removed
        return None


def targets_in(value: Any) -> Iterator[str]:
    """Yield each `_target_` within parameters, however deep."""
    if isinstance(value, Mapping):
        if KEY in value:
            yield str(value[KEY])
        for inner in value.values():
            yield from targets_in(inner)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from targets_in(inner)
