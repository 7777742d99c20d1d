"""A reproduction with nothing but simulated runs: made once, then read."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from experiments.common.papers.declaration import Trial
from experiments.reproductions.__main__ import Places
from tests.unit.experiments.reproductions.fake_runs import regions, reproduce, system

ASKED = (
    *("topo=lan", "workers=16", "steps=2", "seed=0", "workload=replay", "workload.model=mobilenet_v2"),
    *("device=paced", "device.step_s=0.1"),
)
TRIALS = (
    Trial("mobilenet_v2", "new", "simulated", (*ASKED, "strategy=dear"), 10.0),
    Trial("mobilenet_v2", "old", "simulated", (*ASKED, "strategy=ddp", "strategy.overlap=false"), 10.0),
)
MADE = system(TRIALS)
NO_RATIO = (
    "made: repeat 1 is not there: no case has a candidate and all its baselines emulated, at the reference's quality"
)


@pytest.mark.tier("slow")  # tests/unit/experiments/reproductions makes runs up
def test_a_run_is_made_once(tmp_path: Path) -> None:
    places = Places(runs=tmp_path / "runs", results=tmp_path / "results", pages=tmp_path)
    (tmp_path / "made.md").write_text(regions("claim", "set_up", "reproduction"))
    first, failures = reproduce(MADE, places, makes_runs=True, repeat=0)
    assert failures == [NO_RATIO]
    made = sorted(path.name for path in places.runs.iterdir())
    assert len(made) == 2 and made == sorted([*first["runs"]["candidate"], *first["runs"]["baseline"]])
    assert all(json.loads((places.runs / name / "summary.json").read_text())["kind"] == "simulated" for name in made)
    assert first["verdict"] is None  # nothing was emulated
    again, failures = reproduce(MADE, places, makes_runs=True, repeat=0)
    assert failures == [NO_RATIO] and again == first
    assert sorted(path.name for path in places.runs.iterdir()) == made
