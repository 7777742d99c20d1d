"""Functions that may build a topology: those of our families, and those in files that the user trusts by name.

A topology from elsewhere is data. Its `_target_` names no other code, so that drawing it runs nothing of its author's.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
import re
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from types import ModuleType
from typing import Any

import topologies
from testbed.core.errors import InputError, raise_input_faults
from testbed.core.user_files.text import shown
from testbed.orchestrator.config.grammar.overrides import first_line, unknown

_TARGET = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)+")
_FAMILY = re.compile(r"topologies\.(\w+)\.build")
_STEM = re.compile(r"[A-Za-z_]\w*")
_trusted: dict[str, Path] = {}
"""Files whose code may run, by the name of the module that each is."""


def trust(files: Iterable[Path]) -> None:
    """Let topologies name functions of these Python files, besides our families.

    Args:
        files: Files of `--trust`; each is a module of its own name.

    Raises:
        InputError: One cannot be read or cannot be a module, or two have one name; every error at once.
    """
    found: dict[str, Path] = {}
    faults = []
    for path in files:
        if not path.is_file():
            faults.append(f"--trust {path}: there is no such file; give the path of one")
        elif path.suffix != ".py" or not _STEM.fullmatch(path.stem):
            faults.append(f"--trust {path}: must be a Python file named as a module is, such as ship.py; rename it")
        elif path.stem in found:
            faults.append(f"--trust {path}: {found[path.stem]} has the same name; rename one")
        found[path.stem] = path
    raise_input_faults(faults)
    _trusted.clear()
    _trusted.update(found)
    _module.cache_clear()


def builder(target: str) -> Callable[..., Any]:
    """Return the function that builds a topology.

    Args:
        target: `topologies.FAMILY.build`, or `MODULE.FUNCTION` of a trusted file.

    Raises:
        InputError: It is none of these, or cannot be had; one line.
    """
    asked = f"topo._target_={target}"
    if not _TARGET.fullmatch(target):
        raise InputError(f"topo._target_={shown(target)}: not of the form module.function, such as ship.build")
    module, _, function = target.rpartition(".")
    stem = module.rpartition(".")[2]
    if match := _FAMILY.fullmatch(target):
        if match[1] not in families():
            raise InputError(unknown(asked, match[1], families(), "family"))
        found: Any = importlib.import_module(module).build
    elif module in _trusted:
        found = getattr(_module(module), function, None)
    else:
        raise InputError(
            f"{asked}: is neither topologies.FAMILY.build of a family ({', '.join(families())}) nor a function of a"
            f" trusted file; to run code of {stem}.py, give _target_: {stem}.{function} and --trust {stem}.py (make:"
            f" TRUST={stem}.py)"
        )
    if not callable(found):
        raise InputError(f"{asked}: {_trusted[module]} has no function {function}; name one that it has")
    function_found: Callable[..., Any] = found
    return function_found


@functools.cache
def families() -> tuple[str, ...]:
    """Return the names of our families of topologies."""
    stems = sorted(path.stem for path in Path(topologies.__file__).parent.glob("[a-z]*.py"))
    return tuple(stem for stem in stems if hasattr(importlib.import_module(f"topologies.{stem}"), "build"))


@functools.cache
def _module(name: str) -> ModuleType:
    """Return a trusted file as a module, which runs its code.

    Raises:
        InputError: It raises an exception.
    """
    path = _trusted[name]
    spec = importlib.util.spec_from_file_location(f"trusted.{name}", path)
    assert spec is not None and spec.loader is not None
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        raise InputError(f"--trust {path}: cannot be imported: {type(error).__name__}: {first_line(error)}") from error
    return module
