"""Start of each Python process of a user's script, before its first line: what the run needs.

Python imports this module by itself. So the script is started by `python` as anywhere else: its `__main__`, threads and
exit handlers are those of Python. Nothing of Longhaul's is imported here.

* Longhaul's packages are found last, where nothing else has their names.
* Each moment at which a process joins torch's process group, or leaves it, goes into the file LONGHAUL_MARKS.
* The files of the modules that a process had loaded at its end go into a file next to LONGHAUL_MARKS, also where it
  ends by `os._exit`.
* A process that has used torch waits a moment at its end. A thread of gloo that comes back from a collective needs the
  interpreter's lock; one that gets it while the interpreter is taken down ends the process with SIGABRT.
"""

from __future__ import annotations

import atexit
import importlib.util
import os
import site
import sys
import time
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any, NoReturn

_HERE = os.path.dirname(os.path.abspath(__file__))
_CLONE = os.path.abspath(os.path.join(_HERE, *[os.pardir] * 4))
_OURS = ("compressors", "experiments", "testbed", "topologies")
_GROUPS = "torch.distributed.distributed_c10d"
_MARKS = os.environ.get("LONGHAUL_MARKS")
_PAUSE_S = 0.05
_leave = os._exit
_joined: list[int] = []
"""Processes that have joined a group: this one, or the one that it was forked from."""
_noted: set[str] = set()
"""Files of modules that this process, or the one that it was forked from, has noted."""


class _OursLast:
    """Finder of Longhaul's packages, the last one that is asked."""

    @staticmethod
    def find_spec(name: str, path: Sequence[str] | None = None, target: ModuleType | None = None) -> ModuleSpec | None:
        return PathFinder.find_spec(name, [_CLONE], target) if path is None and name in _OURS else None


class _Groups:
    """Finder of torch's process groups, the first one that is asked."""

    @staticmethod
    def find_spec(name: str, path: Sequence[str] | None = None, target: ModuleType | None = None) -> ModuleSpec | None:
        if name != _GROUPS:
            return None
        spec = PathFinder.find_spec(name, path, target)
        if spec is not None and spec.loader is not None:
            loader: Any = spec.loader
            loader.exec_module = _then(loader.exec_module, _watch)
        return spec


def _then(execute: Callable[[ModuleType], None], watch: Callable[[Any], None]) -> Callable[[ModuleType], None]:
    def executed(module: ModuleType) -> None:
        execute(module)
        watch(module)

    return executed


def _watch(module: Any) -> None:
    """Have joining and leaving the default group noted."""
    from functools import wraps

    join, leave = module.init_process_group, module.destroy_process_group

    @wraps(join)
    def init_process_group(*args: Any, **settings: Any) -> Any:
        result = join(*args, **settings)
        _joined[:] = [os.getpid()]
        _mark("joined")
        return result

    @wraps(leave)
    def destroy_process_group(group: Any = None) -> Any:
        if group is None or group is module.GroupMember.WORLD:
            _mark("left")
        return leave(group)

    module.init_process_group, module.destroy_process_group = init_process_group, destroy_process_group


def _mark(what: str) -> None:
    if _MARKS is None:
        return
    try:
        with open(_MARKS, "a") as marks:
            marks.write(f"{what} {time.monotonic()}\n")
    except OSError:
        return


def _note_modules() -> None:
    """Add the files of all modules that are loaded, but for the standard library and installed packages."""
    if _MARKS is None:
        return
    known = tuple(os.path.join(place, "") for place in (os.path.dirname(os.__file__), *site.getsitepackages()))
    names = [_file_of(module) for module in list(sys.modules.values())]
    names += sys.argv[:1]  # the program itself, whose `__main__` has lost its `__file__` by now
    lines = {os.path.abspath(name) for name in names if isinstance(name, str) and not name.startswith(known)} - _noted
    _noted.update(lines)
    try:
        with open(f"{_MARKS}.modules", "a", encoding="utf-8", errors="surrogateescape") as file:
            file.write("".join(f"{line}\n" for line in sorted(lines) if "\n" not in line))
    except OSError:
        return


def _file_of(module: object) -> object:
    """Return what a module gives as its file; None if it has none, or raises."""
    try:
        return getattr(module, "__file__", None)
    except Exception:  # a module may load what it stands for when it is asked, and fail
        return None


def _exit(status: int) -> NoReturn:
    """Replace `os._exit`, which runs no exit handlers."""
    _note_modules()
    _leave(status)


def _end() -> None:
    """Run after all exit handlers of the script."""
    _note_modules()
    if _joined == [os.getpid()]:
        _mark("left")
    if "torch" in sys.modules:
        time.sleep(_PAUSE_S)


def _next(places: list[str]) -> None:
    """Run the module of this name that Python would have found without this one."""
    spec = PathFinder.find_spec("sitecustomize", places)
    if spec is not None and spec.loader is not None:
        module = sys.modules["sitecustomize"] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)


if __name__ == "sitecustomize":
    atexit.register(_end)
    os._exit = _exit
    os.register_at_fork(before=_note_modules)  # so that each of many children notes its own alone
    sys.meta_path.insert(0, _Groups)
    sys.meta_path.append(_OursLast)
    sys.path[:] = [place for place in sys.path if os.path.abspath(place) != _HERE]
    _next(sys.path)
