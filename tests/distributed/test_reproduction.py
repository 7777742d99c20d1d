"""A reproduction with nothing but simulated runs: made once, then read."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from experiments.common.papers.declaration import Trial
from experiments.reproductions.__main__ import Places
from tests.unit.experiments.reproductions.fake_runs import reproduce, system

ASKED = (
    *("topo=lan", "workers=16", "steps=2", "seed=0", "workload=replay", "workload.model=mobilenet_v2"),
    *("device=paced", "device.step_s=0.1"),
)
TRIALS = (
    Trial("mobilenet_v2", "new", "simulated", (*ASKED, "strategy=dear"), 10.0),
    Trial("mobilenet_v2", "old", "simulated", (*ASKED, "strategy=ddp", "strategy.overlap=false"), 10.0),
)
MADE = system(TRIALS)
NO_VERDICT = "made: no verdict: no case has a candidate and a baseline that were emulated and may be believed"


@pytest.mark.tier("slow")  # tests/unit/experiments/reproductions makes runs up
def test_a_run_is_made_once(tmp_path: Path) -> None:
    places = Places(runs=tmp_path / "runs", results=tmp_path / "results", pages=tmp_path)
    (tmp_path / "made.md").write_text("<!-- reproduction: begin -->\n<!-- reproduction: end -->\n")
    first, failures = reproduce(MADE, places, makes_runs=True)
    assert failures == [NO_VERDICT]
    made = sorted(path.name for path in places.runs.iterdir())
    assert len(made) == 2 and made == sorted([*first["runs"]["candidate"], *first["runs"]["baseline"]])
    assert all(json.loads((places.runs / name / "summary.json").read_text())["kind"] == "simulated" for name in made)
    assert first["verdict"] is None  # nothing was emulated
    again, failures = reproduce(MADE, places, makes_runs=True)
    assert failures == [NO_VERDICT] and again == first
    assert sorted(path.name for path in places.runs.iterdir()) == made
