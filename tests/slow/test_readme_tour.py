"""Every command of the README and of docs/commands.md, in their order, as it stands there, in a clone set up for it."""

from __future__ import annotations

import pytest

from testbed.core.errors import EXIT_COMPLETED, EXIT_INVALID
from tests.slow.newcomer import SETUP, Clone
from tests.slow.support import FIRST_SECTION, PAGES, blocks_of, status_of

pytestmark = [pytest.mark.needs_root, pytest.mark.timeout(700, func_only=True)]
NOT_HERE = ("make test", "make bench", "make reproduce", "git clone", "cd ")
"""Tests do not run tests; benchmarks and reproductions have hours."""
NEWCOMERS = blocks_of("README.md", FIRST_SECTION)[0]
"""Which test_newcomers_path.py runs, and looks at what they lead to."""
MAX_S = 1200.0
LONGEST = 5


def commands() -> list[str]:
    found = [command for page in PAGES for block in blocks_of(page) for command in block]
    return [command for command in found if command not in NEWCOMERS and not command.startswith(NOT_HERE)]


@pytest.mark.parametrize("command", commands())
def test_a_command_of_the_readme_works(command: str, clone: Clone) -> None:
    done = clone.run(command, 650)
    # a busy machine makes a run invalid, which is no fault of the command
    assert status_of(done) in (EXIT_COMPLETED, EXIT_INVALID), f"{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
    assert done.stdout.strip() or done.stderr.strip() or command.startswith("make report"), "it says nothing"


def test_set_up_and_all_commands_take_less_than_twenty_minutes(clone: Clone) -> None:
    """Of this file and of test_newcomers_path.py, so both are to be run."""
    lacking = {SETUP, *NEWCOMERS, *commands()} - {command for command, _ in clone.took_s}
    assert not lacking, f"not run in this session, so their sum is not known: {sorted(lacking)}"
    longest = sorted(clone.took_s, key=lambda took: took[1], reverse=True)[:LONGEST]
    named = "; ".join(f"{took_s:.0f} s: {command}" for command, took_s in longest)
    total_s = sum(took_s for _, took_s in clone.took_s)
    assert total_s < MAX_S, f"{total_s:.0f} s, of which {named}"
