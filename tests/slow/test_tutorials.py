"""The tutorials: every file that they show is written, and every command run, in order, as it stands there."""

from __future__ import annotations

import re
import shutil
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

from testbed.core.errors import EXIT_COMPLETED, EXIT_INVALID
from tests.slow.support import ROOT, run, status_of

pytestmark = [pytest.mark.needs_root, pytest.mark.timeout(4000, func_only=True)]
FOLDER = ROOT / "docs" / "tutorials"
MINE = ROOT / "build" / "mine"
LIMIT_S = 2400.0
"""Of one command: six runs of a sweep take four minutes each where other programs have the cores."""
_BLOCK = re.compile(r"^( *)```(sh|python|yaml)\n(.*?)^ *```", re.MULTILINE | re.DOTALL)


@pytest.fixture
def mine() -> Iterator[Path]:
    """The folder in which a reader works."""
    shutil.rmtree(MINE, ignore_errors=True)
    MINE.mkdir(parents=True)
    yield MINE
    shutil.rmtree(MINE)


@pytest.mark.parametrize("page", sorted(path.name for path in FOLDER.glob("*.md")))
def test_a_tutorial_works_as_it_is_written(page: str, mine: Path) -> None:
    was_invalid = False
    for kind, text in blocks(page):
        if kind == "sh":
            for command in text.splitlines():
                was_invalid |= status_after(command, was_invalid) == EXIT_INVALID
            continue
        name, _, _ = text.partition("\n")
        (ROOT / name.removeprefix("# ")).write_text(text)
    assert mine.exists()


def status_after(command: str, was_invalid: bool) -> int:
    """Run a command and return its status: completed, or invalid as a busy machine's runs are, no tutorial's fault.

    Where such runs are all there is, a figure has none to draw, as the pages say; it is then made of the invalid ones.
    """
    done = run(command, LIMIT_S)
    if was_invalid and " plot " in command and "nothing to draw" in done.stderr:
        done = run(f"{command} --all", LIMIT_S)
    assert status_of(done) in (EXIT_COMPLETED, EXIT_INVALID), f"{command}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
    return status_of(done)


def blocks(page: str) -> list[tuple[str, str]]:
    """Return kind and text of each block of code."""
    text = (FOLDER / page).read_text()
    return [(kind, textwrap.dedent(content)) for _, kind, content in _BLOCK.findall(text)]
