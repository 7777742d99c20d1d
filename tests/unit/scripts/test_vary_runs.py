"""Runs that are varied from recorded ones, for tests of tables and pages."""

from __future__ import annotations

from pathlib import Path

import longhaul
from scripts.vary_runs import SEEDS, vary

RECORDED = sorted((Path(__file__).resolve().parents[2] / "data" / "oracles" / "runs").glob("2026*"))


def test_copies_are_runs_that_differ(tmp_path: Path) -> None:
    paths = vary(RECORDED, tmp_path / "runs", 20)
    runs = longhaul.runs(tmp_path / "runs")
    assert list(runs["run_id"]) == [path.name for path in paths]
    assert set(runs["verdict"]) == {"valid", "suspect", "invalid"} and set(runs["seed"]) == set(range(SEEDS))
    alike = runs[runs["strategy"] == "federated"]
    assert alike["time_s"].nunique() == len(alike) == 3
    for path in paths[1:3]:
        run = longhaul.Run(path)
        assert run.evaluations()["value"].max() == run.summary["metric"]["best"]


def test_the_same_numbers_make_the_same_copies(tmp_path: Path) -> None:
    one, other = (vary(RECORDED[:2], tmp_path / name, 2)[1] for name in ("one", "other"))
    for file in ("events.jsonl", "summary.json", "spec.json"):
        assert (one / file).read_bytes() == (other / file).read_bytes()
