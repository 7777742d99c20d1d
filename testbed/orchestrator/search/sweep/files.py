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

import itertools
import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from testbed.core.errors import InputError, raise_input_faults
from testbed.core.user_files.text import listed, shown
from testbed.orchestrator.config.grammar.overrides import is_path_alone, unknown
from testbed.orchestrator.config.user_files.document import Document
from testbed.orchestrator.config.user_files.yaml_reader import is_path, read_yaml
from testbed.orchestrator.executors import options
from testbed.orchestrator.executors.executor import NAMES
from testbed.orchestrator.machine.clone import CLONE
from testbed.orchestrator.search.sweep.axes import Axis, Condition, read_axes, read_condition
from testbed.orchestrator.search.sweep.grid import Branch, Grid, ad_hoc, at_path, with_given

FOLDER = CLONE / "experiments" / "sweeps"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,39}")
"""It becomes the name of a folder."""
_KEYS = ("axes", "when", "exclude", "max_hours", "executors")
_TEXTS = ("axes.*", "when.*.if", "when.*.axes.*", "exclude.*")
"""Where a file has lines of key=value, which are text as written."""
_MAX_FAULTS = 50
_MAX_CHARACTERS, _MAX_DEPTH = 20_000, 20
"""Length of all lines of key=value together, of which parsing takes a second; depth of their brackets."""


def asked(words: Sequence[str]) -> Grid:
    """What `longhaul sweep NAME key=value ...` or `longhaul sweep key=a,b ...` asks for.

    Raises:
        InputError: with every fault at once.
    """
    named = [word for word in words if "=" not in word or is_path_alone(word)]
    texts = [word for word in words if word not in named]
    if len(named) > 1:
        raise InputError(f"sweep {' '.join(named)}: one at a time; everything else is key=value")
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
        raise InputError(f"{path}: {shown(path.stem)} names the sweep: letters, digits, - and _, 40 at most; rename it")
    where = str(path.relative_to(CLONE) if path.is_relative_to(CLONE) else path)
    grid = described(path.stem, read_yaml(path, where))
    return grid if path.resolve().parent == FOLDER else at_path(grid, path)


def described(name: str, document: Document) -> Grid:
    """Return the grid of a sweep's file.

    Args:
        name: Name of the sweep.
        document: Content of the file.

    Raises:
        InputError: The content is wrong; one line a fault, with its line.
    """
    content = document.plain(_TEXTS)
    if not isinstance(content, dict):
        raise InputError(f"{document.at()}: must hold `axes`, a list of key=value lines")
    reader = _Reader(document)
    for key in itertools.islice((key for key in content if key not in _KEYS), _MAX_FAULTS):
        reader.fault(unknown("", key, _KEYS, "key").removeprefix(": "), key)
    axes = reader.axes(content.get("axes"), "axes")
    branches = [
        branch
        for index, entry in enumerate(reader.entries(content.get("when", []), "when"))
        if (branch := reader.branch(entry, "when", index)) is not None
    ]
    excluded = [
        reader.condition(entry, "exclude", index)
        for index, entry in enumerate(reader.entries(content.get("exclude", []), "exclude"))
    ]
    max_hours = content.get("max_hours")
    if max_hours is not None and not (_is_number(max_hours) and 0 < max_hours < math.inf):
        reader.fault(f"{max_hours}: must be a number above 0, of hours, such as 1.5", "max_hours")
    executors = reader.executors(content.get("executors", {}), "executors")
    raise_input_faults(listed(reader.faults, document.where, _MAX_FAULTS))
    exclude = tuple(condition for condition in excluded if condition is not None)
    return Grid(name, axes, tuple(branches), exclude, max_hours, executors)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


class _Reader:
    """Reads the sections of a file and keeps their faults, each with its line.

    Args of its methods: `path` is where the value is in the file.
    """

    def __init__(self, document: Document) -> None:
        self._document = document
        self._characters = 0
        self.faults: list[str] = []

    def fault(self, text: str, *path: str | int, at: Sequence[int] = ()) -> None:
        """Keep a fault of the value at `path`.

        Args:
            at: Position within the value, to find its line.
        """
        steps = [f", entry {step + 1}" if isinstance(step, int) else f": {step}" for step in path]
        if len(self.faults) <= _MAX_FAULTS:
            self.faults.append(f"{self._document.at(*path, *at)}: {''.join(steps)[2:]}: {text}")

    def entries(self, value: Any, *path: str | int) -> list[Any]:
        if isinstance(value, list):
            return value
        self.fault("must be a list, a line with a dash for each entry", *path)
        return []

    def axes(self, value: Any, *path: str | int) -> tuple[Axis, ...]:
        lines = [self._line(entry, *path, index) for index, entry in enumerate(self.entries(value, *path))]
        texts = [line for line in lines if line is not None]
        if isinstance(value, list) and not value:
            self.fault("is empty; give at least one key=value", *path)
        found: list[Axis] = []
        try:
            found = read_axes(texts)
        except InputError as error:
            for fault in error.faults:
                self.fault(fault, *path, at=self._place(fault, lines))
        return tuple(found)

    @staticmethod
    def _place(fault: str, lines: Sequence[str | None]) -> Sequence[int]:
        """Return the position of the line that a fault begins with."""
        keys = [line.partition("=")[0] if line else None for line in lines]
        return [index for index, key in enumerate(keys) if key and fault.startswith(key)][:1]

    def _line(self, value: Any, *path: str | int) -> str | None:
        """Return a line of key=value that can be parsed soon, or None."""
        fault = None
        if not isinstance(value, str):
            fault = "must be text, such as topo=wan1g,wan100m"
        else:
            self._characters += len(value)
            depths = itertools.accumulate((c in "([{") - (c in ")]}") for c in value)
            if self._characters > _MAX_CHARACTERS:
                fault = f"with the lines above has more than {_MAX_CHARACTERS} characters; shorten it, as by range(1,9)"
            elif max(depths, default=0) > _MAX_DEPTH:
                fault = f"is nested more than {_MAX_DEPTH} deep; make it flatter"
        if fault is not None:
            self.fault(f"{shown(value)}: {fault}", *path)
        return value if fault is None else None

    def branch(self, entry: Any, *path: str | int) -> Branch | None:
        if not isinstance(entry, dict) or set(entry) != {"if", "axes"}:
            self.fault("must hold `if` and `axes`, nothing else", *path)
            return None
        condition = self.condition(entry["if"], *path, "if")
        axes = self.axes(entry["axes"], *path, "axes")
        return Branch(condition, axes) if condition is not None else None

    def condition(self, value: Any, *path: str | int) -> Condition | None:
        try:
            line = self._line(value, *path)
            return None if line is None else read_condition(line)
        except InputError as error:
            for fault in error.faults:
                self.fault(fault, *path)
            return None

    def executors(self, value: Any, *path: str | int) -> dict[str, dict[str, object]]:
        if not isinstance(value, dict):
            self.fault("must hold names of executors, each with its options", *path)
            return {}
        for name, given in value.items():
            if name not in NAMES:
                self.fault(unknown("", name, NAMES, "executor").removeprefix(": "), *path, name)
            elif not isinstance(given, dict):
                self.fault("must hold options as key: value", *path, name)
            else:
                for key, fault in options.faults(name, given):
                    self.fault(fault.removeprefix(f"{name}: {key}").lstrip(":= "), *path, name, key)
        return value if not self.faults else {}
