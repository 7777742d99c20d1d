"""Constants fitted to points, and where they are from."""

from __future__ import annotations

from typing import Any

import pytest

from experiments.benchmarks.simulator import calibration
from testbed.analysis.simulator.model.constants import Constants


def test_constants_name_the_machines_of_the_points_they_were_fitted_to(monkeypatch: pytest.MonkeyPatch) -> None:
    def point(role: str, kernel: str) -> dict[str, Any]:
        asked = {"run": f"topo={kernel}", "role": role}
        return {"asked": asked, "result": {"verdict": "valid"}, "measured_at": "then", "machine": {"kernel": kernel}}

    monkeypatch.setattr(calibration, "emulated", lambda found: found)
    monkeypatch.setattr(calibration.calibration, "fit", lambda runs: Constants())
    monkeypatch.setattr(calibration.calibration, "validate", lambda constants, runs: None)
    points = [point("calibration", "a"), point("calibration", "a"), point("validation", "b")]
    origin = calibration.calibrated(points).provenance
    assert [made["kernel"] for made in origin["machines"]] == ["a", "b"]
