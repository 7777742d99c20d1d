"""What scripts/make_wheel.py puts into wheels."""

from __future__ import annotations

import functools
import importlib.util
import sys
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).resolve().parents[1]


@functools.cache
def make_wheel() -> ModuleType:
    spec = importlib.util.spec_from_file_location("make_wheel", ROOT / "scripts" / "make_wheel.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["make_wheel"] = module  # where its dataclass looks
    spec.loader.exec_module(module)
    return module


def files_of(name: str) -> list[Path]:
    maker = make_wheel()
    return list(maker.needed(maker.of(name)))


def staged(name: str, folder: Path) -> Path:
    """What the wheel is built from, in `folder`, which is empty."""
    maker = make_wheel()
    maker.stage(maker.of(name), folder)
    return folder
