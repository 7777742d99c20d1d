"""Every command of the README, in its order, as it stands there."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from testbed.core.errors import EXIT_COMPLETED, EXIT_INVALID
from tests.slow.support import FIRST_SECTION, readme_blocks, run, runs_cleaned_away, status_of

pytestmark = [pytest.mark.slow, pytest.mark.needs_root]
NOT_HERE = ("make test", "make bench", "make reproduce", "git clone", "cd ")
"""Tests do not run tests; benchmarks and reproductions have hours."""


def commands() -> list[str]:
    """Without a newcomer's, which test_newcomers_path.py runs and looks at what they lead to."""
    elsewhere = readme_blocks(FIRST_SECTION)[0]
    found = [command for block in readme_blocks() for command in block if command not in elsewhere]
    return [command for command in found if not command.startswith(NOT_HERE)]


@pytest.fixture(scope="module", autouse=True)
def _runs_are_cleaned_away() -> Iterator[None]:
    with runs_cleaned_away():
        yield


@pytest.mark.timeout(700)
@pytest.mark.parametrize("command", commands())
def test_a_command_of_the_readme_works(command: str) -> None:
    done = run(command, 650)
    # a busy machine makes a run invalid, which is no fault of the command
    assert status_of(done) in (EXIT_COMPLETED, EXIT_INVALID), f"{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
    assert done.stdout.strip() or done.stderr.strip() or command.startswith("make report"), "it says nothing"
