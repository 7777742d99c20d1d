"""Modules of users' plug-ins: found in the folders that a part names, though they are not installed.

The first component of a target is looked for in these folders before anything else, so that a file may be called as an
installed package is. The folders themselves come last on the module path: they hide neither the standard library nor
packages from other code.
"""

from __future__ import annotations

import importlib
import importlib.util
import pkgutil
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType

from testbed.core.spec.redirects import PACKAGES

_folders: list[str] = []
"""Folders that modules were looked for in so far, the last ones first."""


def load(module: str, folders: Sequence[str] = ()) -> ModuleType:
    """Import a module.

    Args:
        module: Dotted name.
        folders: Absolute paths of a user's folders, the first one first.

    Raises:
        ImportError: There is no such module, or another one of this name is in use.
        Exception: Whatever the module raises.
    """
    first = module.partition(".")[0]
    if first not in PACKAGES and folders:
        importlib.invalidate_caches()
        _make_way(folders)
        found = PathFinder.find_spec(first, list(folders))
        if found is not None and found.loader is not None:
            _load_first(first, found)
    return importlib.import_module(module)


def _make_way(folders: Sequence[str]) -> None:
    """Put `folders` on the module path, and drop modules of earlier folders that have the name of one in `folders`.

    One process checks all runs of a sweep, whose parts may lie in several folders.
    """
    earlier = [folder for folder in _folders if folder not in folders]
    twice = _names(earlier) & _names(folders) & sys.modules.keys()
    for first in twice.difference(PACKAGES):
        origin = getattr(sys.modules[first], "__file__", None)
        if origin == _origin(first, earlier) != _origin(first, folders):
            for name in [name for name in sys.modules if name.partition(".")[0] == first]:
                del sys.modules[name]
    _folders[:] = [*folders, *earlier]
    sys.path[:] = [*(path for path in sys.path if path not in _folders), *_folders]


def _names(folders: Sequence[str]) -> set[str]:
    return {found.name for found in pkgutil.iter_modules(list(folders))} if folders else set()


def _origin(name: str, folders: Sequence[str]) -> str | None:
    found = PathFinder.find_spec(name, list(folders))
    return None if found is None else found.origin


def _load_first(name: str, found: ModuleSpec) -> None:
    """Import a module from where it was found.

    Raises:
        ImportError: A module of another place has its name.
    """
    assert found.loader is not None
    if name in sys.modules:
        origin = getattr(sys.modules[name], "__file__", None)
        if origin != found.origin:
            raise ImportError(f"{found.origin} has the name of {origin or 'a module of Python'}; rename it")
        return
    module = sys.modules[name] = importlib.util.module_from_spec(found)
    try:
        found.loader.exec_module(module)
    except BaseException:
        sys.modules.pop(name, None)
        raise
