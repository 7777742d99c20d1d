"""What is kept of a study's sweep, and its table."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from experiments.studies import keep, sweep_charts, sweep_tables
from testbed.core.errors import InputError
from testbed.core.record.run_directory import RunDir, write_json
from testbed.orchestrator.executors.executor import FOLDER
from testbed.orchestrator.search.sweep.files import read


def estimate(mean: float, half: float | None = None, runs: int = 3) -> dict[str, Any]:
    low, high = (None, None) if half is None else (mean - half, mean + half)
    return {"mean": mean, "low": low, "high": high, "seeds": runs, "runs": runs}


_AXES = ("topo", "strategy", "compressor", "workers", "strategy.collective")


def row(runs: int = 3, **given: Any) -> dict[str, Any]:
    keys = ("metric_best", "time_to_target_s", "step_p50_s", "wan_bytes")
    axes = {key: given.pop(key) for key in _AXES if key in given}
    run_ids = [f"run{number}" for number in range(runs)]
    return {"axes": axes, "outcomes": {"valid": runs}, "run_ids": run_ids, "values": dict.fromkeys(keys) | given}


def sweep(*rows: dict[str, Any]) -> dict[str, Any]:
    points = [
        {"values": {**one["axes"], "seed": seed}, "hash": "ab", "outcome": "valid", "run_id": run, "estimate_s": 1.0}
        for one in rows
        for seed, run in enumerate(one["run_ids"])
    ]
    points.append({"values": {}, "hash": "cd", "outcome": "not made", "run_id": None})
    head = {"schema_version": 1, "name": "x", "interval": "95% interval", "axes": ["topo"], "common": {"workers": "4"}}
    return keep.kept({**head, "rows": list(rows), "points": points}, "c0de", {"run0": {"time_to_target_s": 4.0}})


def test_who_always_reaches_the_target_is_on_top_the_first_of_them_first() -> None:
    found = sweep(
        row(topo="wan1g", strategy="never", metric_best=estimate(0.5)),
        row(topo="wan1g", strategy="once", time_to_target_s=estimate(5.0, runs=1), wan_bytes=estimate(2e6)),
        row(topo="wan1g", strategy="slow", time_to_target_s=estimate(20.0, 1.5)),
        row(topo="wan1g", strategy="fast", time_to_target_s=estimate(10.0)),
    )
    lines = sweep_tables.strategies(found).splitlines()
    assert [line.split(" | ")[0] for line in lines[4:8]] == ["| fast", "| slow", "| once", "| never"]
    assert "| 5 (1 of 3 runs) |" in lines[6] and "| 2 MB |" in lines[6]
    assert "| 20 ± 1.5 |" in lines[5] and "| 50 |" in lines[7]
    assert "12 of 13 runs are there; workers 4" in lines[-1]


def test_strategies_are_held_against_ddp_seed_by_seed() -> None:
    def point(strategy: str, seed: int, time_s: float | None, outcome: str = "valid", topo: str = "lan") -> Any:
        values = {"topo": topo, "strategy": strategy, "seed": seed}
        return {"values": values, "outcome": outcome, "time_to_target_s": time_s}

    points = [point("ddp", seed, time_s) for seed, time_s in enumerate((8.0, 30.0, 9.0, None))]
    points += [point("dear", seed, time_s) for seed, time_s in enumerate((4.0, 10.0, None, 5.0))]
    points += [point("dear", 4, 1.0), point("gossip", 0, 1.0, "invalid"), point("gossip", 1, 1.0, topo="wan1g")]
    assert sweep_tables.times_as_soon(points, "lan", "dear") == [2.0, 3.0]
    assert sweep_tables.times_as_soon(points, "lan", "gossip") == []


def test_an_emulated_step_stands_beside_the_simulated_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sweep_tables, "simulated_s", lambda common: {("topk", "ring"): 0.21})
    found = sweep(
        row(topo="ring", compressor="none", step_p50_s=estimate(0.5)),
        row(topo="ring", compressor="topk", step_p50_s=estimate(0.2, 0.01)),
        row(topo="star", compressor="topk"),
    )
    lines = sweep_tables.compressors(found).splitlines()
    assert lines[0] == "| step p50, s | ring | star | runs |"
    assert lines[2] == "| `none` | 0.5, 1.00 times | - | 3 valid |"
    assert lines[3] == "| `topk` | 0.2 ± 0.01, 2.50 times (simulated 0.210) | - | 6 valid |"


def test_the_simulated_steps_are_of_the_sweeps_own_rate_and_round_trip() -> None:
    at_100 = sweep_tables.simulated_s({"topo.rate": "100 Mbit/s", "topo.rtt": "40 ms"})
    at_1000 = sweep_tables.simulated_s({"topo.rate": "1 Gbit/s", "topo.rtt": "10 ms"})
    assert at_1000["none", "ring"] < at_100["none", "ring"]
    with pytest.raises(InputError, match=r"200 Mbit/s, 40 ms: 200/40 is no cell of 10/10, .*100/40"):
        sweep_tables.simulated_s({"topo.rate": "200 Mbit/s", "topo.rtt": "40 ms"})
    with pytest.raises(InputError, match=r"share topo\.rate None and topo\.rtt 40 ms"):
        sweep_tables.simulated_s({"topo.rtt": "40 ms"})


def test_kinds_of_training_stand_by_their_numbers_of_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sweep_tables, "simulated_scale_s", lambda _: {("topk, hierarchical", 16): 0.33})
    found = sweep(
        row(workers="4", compressor="none", **{"strategy.collective": "gloo"}, step_p50_s=estimate(0.8)),
        row(workers="16", compressor="topk", **{"strategy.collective": "hierarchical"}, step_p50_s=estimate(0.3, 0.01)),
    )
    lines = sweep_tables.scale(found).splitlines()
    assert lines[0] == "| step p50, s | 4 workers | 16 workers | runs |"
    assert lines[2] == "| `none` | 0.8 | - | 3 valid |"
    assert lines[3] == "| `topk, hierarchical` | - | 0.3 ± 0.01 (simulated 0.330) | 3 valid |"


def test_the_sweep_of_scale_asks_for_kinds_that_are_simulated() -> None:
    simulated = sweep_tables.simulated_scale_s({"topo.rate": "100 Mbit/s"})
    points = [point.plain for point in read("study-scale").points()]
    assert len(points) == 3 * (2 * 3 * 2 + 1)
    assert all((sweep_tables.kind_of({"axes": one}), int(one["workers"])) in simulated for one in points)


def test_the_figure_of_members_leaves_out_what_has_no_step_and_draws_intervals() -> None:
    found = sweep(
        row(topo="ring", compressor="none", step_p50_s=estimate(0.5)),
        row(topo="ring", compressor="topk", step_p50_s=estimate(0.2, 0.01)),
        row(topo="star", compressor="none"),
        row(topo="star", compressor="topk", step_p50_s=estimate(0.2)),
        row(topo="ring", compressor="never"),
        row(topo="star", compressor="never"),
    )
    assert sweep_charts.speed_ups(found["rows"]) == {("none", "ring"): 1.0, ("topk", "ring"): 2.5}
    drawn = sweep_charts.compressors(found)
    assert ">topk<" in drawn and ">never<" not in drawn


def test_the_interval_of_a_ratio_is_of_both_its_steps() -> None:
    rows = [
        row(topo="ring", compressor="none", step_p50_s=estimate(0.5, 0.02)),
        row(topo="ring", compressor="topk", step_p50_s=estimate(0.2, 0.006)),
        row(topo="ring", compressor="once", step_p50_s=estimate(0.2)),
    ]
    # by hand: 4 % and 3 % make 5 %
    halves = sweep_charts.ratio_halves(rows)
    assert halves["topk", "ring"] == pytest.approx(0.05)
    assert halves["once", "ring"] == 0.0


def test_no_network_and_no_strategy_is_left_out_for_want_of_a_look() -> None:
    names = [f"n{number}" for number in range(9)]
    members = [
        row(topo=name, compressor=member, step_p50_s=estimate(0.5)) for name in names for member in ("none", "topk")
    ]
    drawn = sweep_charts.compressors(sweep(*members))
    assert all(f">{name}<" in drawn for name in names)
    drawn = sweep_charts.strategies(sweep(*(row(topo="lan", strategy=name, wan_bytes=estimate(2e6)) for name in names)))
    assert all(f">{name}<" in drawn for name in names)


def test_the_figure_of_strategies_leaves_out_who_never_reaches_the_target() -> None:
    found = sweep(
        row(topo="wan1g", strategy="ddp", wan_bytes=estimate(2e6)),
        row(topo="wan1g", strategy="uncounted"),
        row(topo="wan1g", strategy="never", wan_bytes=estimate(1.0)),
    )
    for point in found["points"]:
        if point["values"].get("strategy") == "never":
            point["time_to_target_s"] = None
    drawn = sweep_charts.strategies(found)
    assert ">wan1g<" in drawn and ">ddp<" in drawn
    assert ">never<" not in drawn and ">uncounted<" not in drawn


def results(runs: Path, folder: str, found: dict[str, Any]) -> None:
    path = runs / FOLDER / folder / "results.json"
    path.parent.mkdir(parents=True)
    write_json(path, found)


def test_a_sweep_is_kept_from_its_own_folder_and_with_all_points_of_its_file(tmp_path: Path) -> None:
    name = "study-strategies"
    results(tmp_path, f"{name}-0123abcd", {"name": f"{name}-0123abcd", "points": []})
    with pytest.raises(InputError, match=f"no .*{FOLDER}/{name}/results.json"):
        keep.results_of(tmp_path, name)
    whole = {"name": name, "points": [{"values": point.plain} for point in read(name).points()]}
    results(tmp_path, name, whole)
    assert keep.results_of(tmp_path, name) == whole


def test_what_is_not_of_the_sweeps_file_is_refused_and_named() -> None:
    name = "study-strategies"
    values = [dict(point.plain) for point in read(name).points()]
    found = {"points": [{"values": one} for one in (*values[2:], {**values[0], "workers": "8"})]}
    with pytest.raises(InputError) as refused:
        keep.require_points(name, found)
    (said,) = refused.value.faults
    assert said.startswith(f"{name}: {len(values) - 1} points, and the sweep's file asks for {len(values)}; not asked")
    assert "not asked for: 1, such as {" in said and '"workers": "8"' in said
    assert "missing: 2, such as {" in said


def test_what_is_kept_names_the_code_that_made_its_runs(tmp_path: Path) -> None:
    for run_id, code in (("run0", "aa"), ("run1", "aa"), ("other", "bb")):
        run = RunDir(tmp_path / run_id)
        run.path.mkdir()
        write_json(run.spec, {"code_hash": code})
    points: list[dict[str, Any]] = [{"run_id": "run0"}, {"run_id": "run1"}, {"run_id": None}]
    assert keep.code_of({"name": "x", "points": points}, tmp_path) == "aa"
    with pytest.raises(InputError, match=r"x: runs of 2 codes \(aa, bb\)"):
        keep.code_of({"name": "x", "points": [*points, {"run_id": "other"}]}, tmp_path)


def test_of_each_run_what_it_says_of_itself_is_kept(tmp_path: Path) -> None:
    for run_id, metric in (("reached", {"time_to_target_s": 4.5}), ("missed", {"best": 0.1}), ("script", None)):
        run = RunDir(tmp_path / run_id)
        run.path.mkdir()
        sizes = {"payload": 7, "wire_wan": 8}
        write_json(run.summary, {"metric": metric, "step_time_s": {"p50": 0.5}, "bytes": sizes, "reasons": ["late"]})
    points: list[dict[str, Any]] = [{"run_id": name} for name in ("reached", "missed", "script", None)]
    found = keep.said_by({"points": points}, tmp_path)
    assert {run_id: one["time_to_target_s"] for run_id, one in found.items()} == {
        "reached": 4.5,
        "missed": None,
        "script": None,
    }
    assert found["missed"] == {
        "time_to_target_s": None,
        "metric_best": 0.1,
        "step_p50_s": 0.5,
        "payload_bytes": 7,
        "wan_bytes": 8,
        "reasons": ["late"],
    }


def test_another_version_of_the_results_is_refused() -> None:
    with pytest.raises(InputError, match="schema_version 2"):
        keep.kept({"schema_version": 2}, "c0de", {})


@pytest.mark.parametrize("name", keep.STUDIES)
def test_a_study_is_a_sweep_and_its_page_is_what_is_kept(name: str) -> None:
    assert read(name)
    study = keep.STUDIES[name]
    text = study.page.read_text()
    assert text.count(f"<!-- {name}: begin -->") == text.count(f"<!-- {name}: end -->") == 1
    assert keep.page(name) == text
    keep.require_points(name, keep.read_kept(name))
    assert study.figure.exists() and f"figures/{study.figure.name}" in text
