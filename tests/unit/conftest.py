"""What the tests of several sides share."""

from __future__ import annotations

from pathlib import Path

import pytest

from testbed.orchestrator.emulation.kernel import slowed_tcp


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    """Where runs are to lie; empty."""
    path = tmp_path / "runs"
    path.mkdir()
    return path


@pytest.fixture(autouse=True)
def _kernels_own_tcp(monkeypatch: pytest.MonkeyPatch) -> None:
    """Round trips that a run bears are those of a machine without slowed BBR and CUBIC, whatever this one has."""
    monkeypatch.setattr(slowed_tcp, "lack", lambda _: "unit tests try nothing")
