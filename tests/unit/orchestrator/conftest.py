"""Unit tests find the machine free, whoever measures on it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from testbed.orchestrator.machine import lock


@pytest.fixture(autouse=True, scope="session")
def _free_machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    folder = tmp_path_factory.mktemp("locks")
    with pytest.MonkeyPatch.context() as patch:
        for name, value in (("RUNTIME_ROOT", "."), ("MACHINE_LOCK", "machine.lock"), ("SHARED_LOCK", "shared.lock")):
            patch.setattr(lock, name, folder / value)
        yield
