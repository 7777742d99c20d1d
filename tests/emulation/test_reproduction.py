"""`make reproduce` makes emulated runs, judges by them, and makes none of them twice; not how good the system is."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from experiments.common.papers.declaration import Trial
from experiments.reproductions.__main__ import Places
from testbed.core.record.summary import summary_faults
from tests.unit.experiments.reproductions.fake_runs import reproduce, system

_ASKED = (
    *("topo=lan", "topo.lan_rate='1 Gbit/s'", "workers=2", "steps=3", "seed=0", "evaluate_every=1000"),
    *("workload=replay", "workload.model=resnet18", "workload.scale=20", "device=paced", "device.step_s=0.5"),
)
_TRIALS = (
    Trial("resnet18", "new", "emulated", (*_ASKED, "strategy=dear"), 20.0),
    Trial("resnet18", "old", "emulated", (*_ASKED, "strategy=ddp", "strategy.overlap=false"), 20.0),
)
_SYSTEM = system(_TRIALS)


@pytest.mark.tier("slow")
def test_emulated_runs_are_made_once_and_decide(machine_lock: None, tmp_path: Path) -> None:
    places = Places(runs=tmp_path / "runs", results=tmp_path / "results", pages=tmp_path)
    (tmp_path / "made.md").write_text("<!-- reproduction: begin -->\n<!-- reproduction: end -->\n")
    content, failures = reproduce(_SYSTEM, places, makes_runs=True, share=True)
    assert failures == []
    made = sorted(path.name for path in places.runs.iterdir())
    summaries = [json.loads((places.runs / name / "summary.json").read_text()) for name in made]
    assert all(summary["kind"] == "emulated" and summary_faults(summary) == [] for summary in summaries)
    verdicts = {summary["run_id"]: summary["verdict"] for summary in summaries}
    well = [run_id for run_id, verdict in verdicts.items() if verdict != "invalid"]
    lacking = 2 - len(well)  # the machine is not the test's alone; what is invalid is made once more
    assert 2 + lacking <= len(made) <= 4
    assert sorted(well) == sorted([*content["runs"]["candidate"], *content["runs"]["baseline"]])
    assert (content["verdict"] is None) == (content["emulated"] is None) == bool(lacking)
    assert content["verdict"] in ("reproduced", "partly", "not", None)
    _, failures = reproduce(_SYSTEM, places, makes_runs=True, share=True)
    assert failures == []
    after = {path.name for path in places.runs.iterdir()}
    assert after >= set(made) and lacking <= len(after) - len(made) <= 2 * lacking
