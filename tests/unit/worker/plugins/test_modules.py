"""Modules of users are found in the folders of their part, and hide nothing."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from compressors.base.compressor import Compressor
from testbed.core.errors import InputError
from testbed.core.spec.run_spec import Part
from testbed.worker.plugins import modules
from testbed.worker.plugins.factory import build

MINE = "from compressors.none import Uncompressed\n{helper}\n\nclass Mine(Uncompressed):\n    mark = {mark}\n"


@pytest.fixture(autouse=True)
def _as_before(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(modules, "_folders", [])
    before = dict(sys.modules)
    yield
    for name in sys.modules.keys() - before.keys():
        if not name.startswith(("compressors", "testbed")):
            del sys.modules[name]


def folder(place: Path, name: str, mark: str, helper: str = "") -> str:
    path = place / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(MINE.format(helper=helper, mark=mark))
    return str(place)


def mark(target: str, *folders: str) -> Any:
    return build("compressor", Part("mine", target, {}, folders), Compressor).mark


def test_two_folders_with_modules_of_one_name_are_told_apart(tmp_path: Path) -> None:
    one = folder(tmp_path / "one", "signs.py", "helper.MARK", "import helper")
    two = folder(tmp_path / "two", "signs.py", "helper.MARK", "import helper")
    (tmp_path / "one" / "helper.py").write_text("MARK = 1\n")
    (tmp_path / "two" / "helper.py").write_text("MARK = 2\n")
    assert [mark("signs.Mine", place) for place in (one, two, one)] == [1, 2, 1]


@pytest.mark.parametrize("name", ["idlelib", "turtledemo", "this", "antigravity"])
def test_a_file_may_have_the_name_of_a_module_that_is_not_in_use(name: str, tmp_path: Path) -> None:
    assert mark(f"{name}.Mine", folder(tmp_path, f"{name}.py", "3")) == 3


@pytest.mark.parametrize("name", ["random", "torch", "sys"])
def test_one_with_the_name_of_a_module_in_use_is_refused(name: str, tmp_path: Path) -> None:
    place = folder(tmp_path, f"{name}.py", "3")
    with pytest.raises(InputError, match=rf"{name}\.py has the name of .*; rename it"):
        mark(f"{name}.Mine", place)


def test_a_folder_hides_neither_the_standard_library_nor_our_packages(tmp_path: Path) -> None:
    place = folder(tmp_path, "mine.py", "colorsys.ONE_THIRD", "import colorsys, compressors")
    (tmp_path / "colorsys.py").write_text("raise RuntimeError('the wrong one')\n")
    (tmp_path / "compressors.py").write_text("raise RuntimeError('the wrong one')\n")
    assert mark("mine.Mine", place) == pytest.approx(1 / 3)
    with pytest.raises(InputError, match=r"cannot load 'compressors\.mine\.Mine'"):
        mark("compressors.mine.Mine", place)


def test_a_module_that_ends_the_process_is_refused(tmp_path: Path) -> None:
    place = folder(tmp_path, "ends.py", "3", "raise SystemExit('no licence')")
    with pytest.raises(InputError, match=r"cannot load 'ends\.Mine': SystemExit: no licence"):
        mark("ends.Mine", place)


def test_packages_with_and_without_an_init_file(tmp_path: Path) -> None:
    place = folder(tmp_path, "with_init/inner.py", "4")
    (tmp_path / "with_init" / "__init__.py").write_text("MARK = 5\n")
    folder(tmp_path, "without/inner.py", "6")
    assert (mark("with_init.inner.Mine", place), mark("without.inner.Mine", place)) == (4, 6)


def test_a_module_that_is_nowhere_is_told_with_the_folders(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=f"No module named 'nowhere'; looked in {tmp_path}, and on PYTHONPATH"):
        mark("nowhere.Mine", str(tmp_path))


def test_a_module_that_fails_is_tried_again(tmp_path: Path) -> None:
    (tmp_path / "later.py").write_text("raise RuntimeError('not yet')\n")
    with pytest.raises(InputError, match="RuntimeError: not yet"):
        mark("later.Mine", str(tmp_path))
    folder(tmp_path, "later.py", "7000")
    assert mark("later.Mine", str(tmp_path)) == 7000
