"""Parameters of `workload=script`, checked before anything is built: the script, and its arguments as typed."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from typing import Any

from testbed.core.spec.run_spec import Part
from testbed.orchestrator.config.caller_environment import module_path, passed_on, recorded
from testbed.orchestrator.config.grammar.overrides import Override, unknown
from testbed.orchestrator.config.grammar.script_arguments import ARGUMENTS, AS_IN, elements
from testbed.orchestrator.machine.clone import CLONE

KNOWN = ("script", "module", "args")


def script_part(
    workload: Part, typed: Override | None, words: Sequence[str], environment: Mapping[str, str]
) -> tuple[Part, list[str]]:
    """Return the workload with its script, arguments and environment settled, and what is wrong with them.

    Args:
        typed: The override `workload.args=`; None where the command line has none. OmegaConf, which would replace what
            looks like an interpolation, has not seen it.
        words: Command line of the script, as it stands behind `--`.
        environment: Variables of whoever called.
    """
    params = workload.params
    faults = [unknown(f"workload.{key}={params[key]}", key, KNOWN, "parameter") for key in params if key not in KNOWN]
    spelt = None if typed is None else typed.text.partition("=")[2]
    arguments, more = arguments_of(params.get("args") if typed is None else typed.value, spelt)
    if words and typed is not None:
        more = [f"{ARGUMENTS}={spelt} -- {' '.join(words)}: the script's arguments are given twice; give them once"]
    place, faults_of_place = _place(params)
    kept = {key: value for key, value in params.items() if key not in KNOWN}  # refused; a spec is made all the same
    variables = recorded(passed_on(environment))
    if path := module_path(environment, str(CLONE)):
        variables["PYTHONPATH"] = os.pathsep.join(path)
    settled = {**kept, **place, "args": list(words) or arguments}
    if variables:
        settled["environment"] = variables
    return replace(workload, params=settled), [*faults, *faults_of_place, *more]


def arguments_of(given: Any, typed: str | None) -> tuple[list[str], list[str]]:
    """Return a script's arguments as texts, in the spelling in which they were typed, and what is wrong with them.

    Args:
        given: Value as Hydra reads it.
        typed: Text of the value; None where it stands in a file.
    """
    shown = given if typed is None else typed
    if not isinstance(given, list):
        return [], [f"{ARGUMENTS}={shown}: {AS_IN}"]
    spelt = elements(typed) if typed is not None else []
    if len(spelt) != len(given):
        spelt = [None] * len(given)
    found: list[str] = []
    faults = []
    for value, spelling in zip(given, spelt, strict=True):
        if isinstance(value, str):
            found.append(value)
        elif spelling is None or isinstance(value, list | dict):
            faults.append(f"{ARGUMENTS}={shown}: {value!r} is no text; {AS_IN}")
        else:
            found.append(spelling)
    return found, faults


def _place(params: Mapping[str, Any]) -> tuple[dict[str, str], list[str]]:
    """Return the parameters that say what runs and where, with absolute paths, and what is wrong with them."""
    script, module = params.get("script"), params.get("module")
    if script is not None and module is not None:
        return {}, [f"workload.script={script} workload.module={module}: give one of the two"]
    if module is not None:
        return _module(str(module))
    if script is None:
        return {}, ["workload.script: must be given, such as workload.script=train.py"]
    path = Path(str(script)).resolve()
    if not path.is_file():
        return {}, [f"workload.script={script}: no such file"]
    return {"script": str(path)}, list(_closed(f"workload.script={script}", path, path.parent))


def _module(name: str) -> tuple[dict[str, str], list[str]]:
    """Find what `python -m NAME` would run from here. Nothing of the user's is imported for it."""
    asked, directory = f"workload.module={name}", Path.cwd()
    if not all(segment.isidentifier() for segment in name.split(".")):
        return {}, [f"{asked}: must be the name of a module, such as package.train"]
    places = [str(directory), *module_path(os.environ, str(CLONE)), *(place for place in sys.path if place)]
    spec = _found(name, places)
    if spec is not None and spec.submodule_search_locations is not None:
        spec = PathFinder.find_spec("__main__", list(spec.submodule_search_locations))
        if spec is None:
            return {}, [f"{asked}: a package without a module __main__, so that it cannot be run; name a module in it"]
    if spec is None or spec.origin is None:
        return {}, [f"{asked}: no such module in {directory}, on PYTHONPATH or in the packages of {sys.prefix}"]
    path = Path(spec.origin)
    faults = _closed(asked, path, directory) if path.is_file() else ()
    return {"module": name, "file": str(path), "directory": str(directory)}, list(faults)


def _found(name: str, places: list[str]) -> ModuleSpec | None:
    """Return where a module lies, package by package."""
    spec = None
    for segment in name.split("."):  # by its own name: of a longer one the parent would have to be imported
        spec = PathFinder.find_spec(segment, places)
        if spec is None:
            return None
        places = list(spec.submodule_search_locations or ())
    return spec


def _closed(asked: str, file: Path, directory: Path) -> Iterator[str]:
    """Yield a fault if workers cannot read the file or its folder."""
    if directory.stat().st_mode & 0o005 != 0o005 or file.stat().st_mode & 0o004 != 0o004:
        said = f"chmod o+rx {directory}; chmod o+r {file}"
        yield f"{asked}: workers are nobody and cannot read it there: {said}"
