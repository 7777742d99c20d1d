"""Every command of docs/own-scripts.md, as it stands there."""

from __future__ import annotations

import pytest

from testbed.core.errors import EXIT_COMPLETED, EXIT_INVALID
from tests.slow.support import blocks_of, run, status_of

pytestmark = [pytest.mark.needs_root, pytest.mark.timeout(700, func_only=True)]


@pytest.mark.parametrize("command", [command for block in blocks_of("docs/own-scripts.md") for command in block])
def test_a_command_of_the_page_works(command: str) -> None:
    done = run(command, 650)
    assert status_of(done) in (EXIT_COMPLETED, EXIT_INVALID), f"{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
    assert "rank 0 epoch 1 loss" in done.stdout
