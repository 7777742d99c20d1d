"""Every command of the README, in its order, as it stands there."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator

import pytest

from testbed.core.errors import EXIT_COMPLETED, EXIT_INVALID
from tests.slow.support import ROOT, run, run_ids, status_of

pytestmark = [pytest.mark.slow, pytest.mark.needs_root]
NOT_HERE = ("make test", "make bench", "make reproduce", "git clone", "cd ")
"""Tests do not run tests; benchmarks and reproductions have hours."""


def commands() -> list[str]:
    found = []
    for block in re.findall(r"^```sh\n(.*?)^```", (ROOT / "README.md").read_text(), re.MULTILINE | re.DOTALL):
        for line in block.replace("\\\n", " ").splitlines():
            words = shlex.split(line, comments=True)
            if words and not shlex.join(words).startswith(NOT_HERE):
                found.append(shlex.join(words))
    return found


@pytest.fixture(scope="module", autouse=True)
def _runs_are_cleaned_away() -> Iterator[None]:
    before = run_ids()
    yield
    if made := sorted(run_ids() - before):
        run(f".venv/bin/longhaul clean {shlex.join(made)}", 60)


@pytest.mark.timeout(700)
@pytest.mark.parametrize("command", commands())
def test_a_command_of_the_readme_works(command: str) -> None:
    done = run(command, 650)
    # a busy machine makes a run invalid, which is no fault of the command
    assert status_of(done) in (EXIT_COMPLETED, EXIT_INVALID), f"{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
    assert done.stdout.strip() or done.stderr.strip() or command.startswith("make report"), "it says nothing"
