"""Longhaul's package `compressors` apart from a script's own module of that name, in either order of imports.

In a script's process the name means the script's own, where it has one. While `ours()` is entered it means Longhaul's;
the modules of either are put aside meanwhile, so that both live in one process. A script without such a module finds
Longhaul's under the name, as one that derives a compressor from our base class does.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from importlib.abc import Loader
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import spec_from_loader
from pathlib import Path
from types import ModuleType

ROOT = str(Path(__file__).resolve().parents[3])
NAMES = ("compressors",)
"""Packages of ours that the hook imports, next to `testbed`."""

_kept: dict[str, ModuleType] = {}
"""Our modules while the script's names do not mean them."""
_lock = threading.RLock()


@contextlib.contextmanager
def ours() -> Iterator[None]:
    """Let NAMES mean Longhaul's packages for a block."""
    with _lock:
        theirs = _taken(lambda module: not _is_ours(module))
        is_apart = bool(_kept) or not _loaded()
        sys.modules.update(_kept)
        sys.meta_path.insert(0, _Ours)
        try:
            yield
        finally:
            sys.meta_path.remove(_Ours)
            if is_apart:  # otherwise the process has imported ours by itself, and goes on with them
                _kept.update(_taken(_is_ours))
                if _Theirs not in sys.meta_path:
                    sys.meta_path.insert(0, _Theirs)
            sys.modules.update(theirs)


class _Ours:
    """Finder inside the block."""

    @staticmethod
    def find_spec(name: str, path: Sequence[str] | None = None, target: ModuleType | None = None) -> ModuleSpec | None:
        return PathFinder.find_spec(name, [ROOT], target) if path is None and name in NAMES else None


class _Theirs:
    """Finder outside the block: the script's module of the name; ours, which are loaded already, if it has none."""

    @staticmethod
    def find_spec(name: str, path: Sequence[str] | None = None, target: ModuleType | None = None) -> ModuleSpec | None:
        if path is not None or name not in NAMES:
            return None
        places = [place for place in sys.path if os.path.realpath(place) != ROOT]
        return PathFinder.find_spec(name, places, target) or spec_from_loader(name, _Kept())


class _Kept(Loader):
    """Loader that gives back modules that were put aside."""

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return None

    def exec_module(self, module: ModuleType) -> None:
        sys.modules.update(_kept)
        _kept.clear()


def _loaded() -> list[str]:
    return [name for name in list(sys.modules) if name.partition(".")[0] in NAMES]


def _taken(wanted: Callable[[ModuleType], bool]) -> dict[str, ModuleType]:
    """Take modules under NAMES out of those that are loaded."""
    return {name: sys.modules.pop(name) for name in _loaded() if wanted(sys.modules[name])}


def _is_ours(module: ModuleType) -> bool:
    folder = os.path.join(ROOT, module.__name__.partition(".")[0])
    return os.path.realpath(getattr(module, "__file__", None) or "").startswith(folder + os.sep)
