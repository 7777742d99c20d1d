from __future__ import annotations

import pytest

from testbed.orchestrator.search.sweep.specs import RunRequest
from tests.unit.orchestrator.made_runs import asked_of, grid


@pytest.fixture(scope="module")
def asked() -> list[RunRequest]:
    return asked_of(grid("seed=range(3)"))
