"""Sweeps by name: files experiments/sweeps/NAME.yaml, or one given by its path.

axes:                        # of every run; as on the command line
  - topo=wan1g,wan100m
  - compressor=none,topk
  - seed=range(3)
when:                        # more axes, of those runs alone
  - if: compressor=topk
    axes:
      - compressor.density=0.01,0.1
exclude:                     # runs that are not made
  - topo=wan1g compressor=none
max_hours: 2                 # no run is begun that would end later than this after the call
executors:                   # options of executors, where the sweep is made by one that has some
  slurm: {partition: long, time_min: 60}
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml  # type: ignore[import-untyped]

from testbed.core.errors import InputError, raise_input_faults
from testbed.orchestrator.config.grammar.overrides import first_line, unknown
from testbed.orchestrator.config.topology import is_path
from testbed.orchestrator.executors.executor import NAMES
from testbed.orchestrator.machine.clone import CLONE
from testbed.orchestrator.search.sweep.axes import Axis, Condition, read_axes, read_condition
from testbed.orchestrator.search.sweep.grid import Branch, Grid, ad_hoc, with_given

FOLDER = CLONE / "experiments" / "sweeps"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,39}")
"""It becomes the name of a folder."""
_KEYS = ("axes", "when", "exclude", "max_hours", "executors")


def asked(words: Sequence[str]) -> Grid:
    """What `longhaul sweep NAME key=value ...` or `longhaul sweep key=a,b ...` asks for.

    Raises:
        InputError: with every fault at once.
    """
    named = [word for word in words if "=" not in word]
    texts = [word for word in words if "=" in word]
    if len(named) > 1:
        raise InputError(f"sweep {' '.join(named)}: one at a time; all else is key=value")
    if named:
        return with_given(read(named[0]), texts)
    if not texts:
        raise InputError(f"sweep: name one, or give axes such as compressor=none,topk; known: {', '.join(known())}")
    return ad_hoc(texts)


def known() -> list[str]:
    return sorted(path.stem for path in FOLDER.glob("*.yaml"))


def read(name: str) -> Grid:
    """The sweep of this name, or in the file of this path.

    Raises:
        InputError: with every fault at once.
    """
    if not is_path(name) and name not in known():
        raise InputError(unknown(f"sweep {name}", name, known(), "sweep"))
    path = Path(name) if is_path(name) else FOLDER / f"{name}.yaml"
    if not _NAME.fullmatch(path.stem):
        raise InputError(f"{path}: {path.stem!r} names the sweep: letters, digits, - and _, 40 at most; rename it")
    try:
        content = yaml.safe_load(path.read_text())
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from error
    except (UnicodeDecodeError, yaml.YAMLError) as error:
        raise InputError(f"{path}: is not YAML: {first_line(error)}") from error
    where = str(path.relative_to(CLONE) if path.is_relative_to(CLONE) else path)
    return described(path.stem, where, content)


def described(name: str, where: str, content: Any) -> Grid:
    """
    Args:
        name: of the sweep.
        where: its file, for messages.
        content: what the file holds.

    Raises:
        InputError: with every fault at once.
    """
    if not isinstance(content, dict):
        raise InputError(f"{where}: must hold `axes`, a list of key=value lines")
    faults = [unknown(f"{where}: {key}", str(key), _KEYS, "key") for key in content if key not in _KEYS]
    axes = _axes_of(content.get("axes"), f"{where}: axes", faults)
    branches = []
    for number, entry in enumerate(_list_of(content.get("when", []), f"{where}: when", faults), 1):
        at = f"{where}: when, entry {number}"
        if not isinstance(entry, dict) or set(entry) != {"if", "axes"}:
            faults.append(f"{at}: must hold `if` and `axes`, nothing else")
            continue
        condition = _condition_of(entry["if"], f"{at}: if", faults)
        own = _axes_of(entry["axes"], f"{at}: axes", faults)
        branches += [Branch(condition, own)] if condition is not None else []
    excluded = _list_of(content.get("exclude", []), f"{where}: exclude", faults)
    exclude = [_condition_of(entry, f"{where}: exclude", faults) for entry in excluded]
    max_hours = content.get("max_hours")
    if max_hours is not None and not (_is_number(max_hours) and 0 < max_hours < math.inf):
        faults.append(f"{where}: max_hours: {max_hours}: must be a number above 0")
    options = _options_of(content.get("executors", {}), f"{where}: executors", faults)
    raise_input_faults(faults)
    return Grid(name, axes, tuple(branches), tuple(one for one in exclude if one is not None), max_hours, options)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _options_of(value: Any, where: str, faults: list[str]) -> dict[str, dict[str, object]]:
    """Whether an executor has such options is its own affair, once it is chosen."""
    if not isinstance(value, dict):
        faults.append(f"{where}: must hold names of executors, each with its options")
        return {}
    faults += [unknown(f"{where}: {name}", str(name), NAMES, "executor") for name in value if name not in NAMES]
    faults += [
        f"{where}: {name}: must hold options as key: value" for name in value if not isinstance(value[name], dict)
    ]
    return {str(name): {str(key): option for key, option in value[name].items()} for name in value if not faults}


def _list_of(value: Any, where: str, faults: list[str]) -> list[Any]:
    if not isinstance(value, list):
        faults.append(f"{where}: must be a list, a line with a dash for each entry")
        return []
    return value


def _axes_of(value: Any, where: str, faults: list[str]) -> tuple[Axis, ...]:
    texts = _list_of(value, where, faults)
    if isinstance(value, list) and not texts:
        faults.append(f"{where}: is empty")
    try:
        return tuple(read_axes([str(text) for text in texts]))
    except InputError as error:
        faults += [f"{where}: {fault}" for fault in error.faults]
        return ()


def _condition_of(value: Any, where: str, faults: list[str]) -> Condition | None:
    try:
        return read_condition(str(value))
    except InputError as error:
        faults += [f"{where}: {fault}" for fault in error.faults]
        return None
