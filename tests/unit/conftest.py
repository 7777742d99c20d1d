"""What the tests of several sides share."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    """Where runs are to lie; empty."""
    path = tmp_path / "runs"
    path.mkdir()
    return path
