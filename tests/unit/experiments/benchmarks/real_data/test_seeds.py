"""Seeds, verdicts and tables of accuracy, on invented outcomes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from experiments.benchmarks.real_data import measure, seeds, tables
from experiments.common import harness
from experiments.common.harness import Results

BASE = [0.880, 0.884, 0.876, 0.882, 0.878, 0.881, 0.879]


def _result(value: float | None, metric: str = "accuracy") -> dict[str, Any]:
    return {
        "metric": {"name": metric, "value": value, "target": 0.88},
        "higher_is_better": metric == "accuracy",
        "steps": 1000,
        "sent_bytes": 10,
        "dense_bytes": 100,
    }


def _row(*values: float | None, metric: str = "accuracy") -> seeds.Row:
    return {seed: _result(value, metric) for seed, value in enumerate(values)}


def _worse_by(points: list[float]) -> seeds.Row:
    return _row(*(base - worse / 100 for base, worse in zip(BASE, points, strict=False)))


@pytest.mark.parametrize(
    ("points", "expected"),
    [
        ([0.1, 0.1, 0.0], seeds.WITHIN),  # by hand: mean 0.067, half width 4.303 * 0.0577 / sqrt(3) = 0.143
        ([2.0, 2.1, 2.4], seeds.NOT_WITHIN),
        ([0.0, 1.0, 0.5], seeds.UNDECIDED),
        ([-3.0, -3.0, -2.9], seeds.WITHIN),  # better by far is not worse
        ([0.4, 0.5, 0.6], seeds.UNDECIDED),
        ([0.1, 0.1], seeds.UNDECIDED),  # as many as three are needed
        ([0.6, 0.6, 0.6, 0.6], seeds.NOT_WITHIN),
    ],
)
def test_a_verdict_is_of_the_interval_of_paired_differences(points: list[float], expected: str) -> None:
    assert seeds.decided(seeds.differences(_worse_by(points), _row(*BASE))) == expected


def test_pairs_are_of_the_same_seed_and_bits_are_shares_of_the_baselines() -> None:
    row, base = {4: _result(0.87), 1: _result(0.88), 9: _result(0.5)}, _row(*BASE)
    assert seeds.differences(row, base) == pytest.approx([0.88 - 0.884, 0.87 - 0.878])
    bits = seeds.differences(_row(2.12, metric="bits_per_byte"), _row(2.0, metric="bits_per_byte"))
    assert bits == pytest.approx([-0.06])


def test_a_row_that_diverged_once_is_not_within() -> None:
    assert seeds.decided(seeds.differences(_row(0.88, None, 0.88), _row(*BASE))) == seeds.NOT_WITHIN


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        ({}, 3),
        (_worse_by([0.1, 0.1]), 3),
        (_worse_by([0.1, 0.1, 0.0]), 3),
        (_worse_by([0.0, 1.0, 0.5]), 4),
        (_worse_by([0.0, 1.0, 0.5, 0.5]), 5),
        (_worse_by([0.0, 1.0, 0.5, 0.5, 0.5, 0.0]), 7),
        (_worse_by([0.0, 1.0, 0.5, 0.5, 0.5, 0.0, 1.0]), 7),  # undecided it stays
        ({0: {"refused": "no"}}, 1),
    ],
)
def test_a_row_takes_another_seed_while_it_is_undecided(row: seeds.Row, expected: int) -> None:
    assert seeds.wanted(row, _row(*BASE)) == expected


def test_the_baseline_has_every_seed_that_a_row_needs() -> None:
    rows = {seeds.BASE: _row(*BASE[:3]), "close": _worse_by([0.1, 0.1, 0.0]), "open": _worse_by([0.0, 1.0, 0.5])}
    asked = list(seeds.asked(rows))
    counts = {name: sorted(seed for row, seed in asked if row == name) for name in rows}
    assert counts == {seeds.BASE: [0, 1, 2, 3], "close": [0, 1, 2], "open": [0, 1, 2, 3]}
    assert [seed for _, seed in asked] == sorted(seed for _, seed in asked)
    # until the baseline has the seed, the row is not asked for one more
    rows["open"] = _worse_by([0.0, 1.0, 0.5, 0.5])
    assert seeds.wanted(rows["open"], rows[seeds.BASE]) == 4


def _points(rows: dict[str, seeds.Row], workload: str) -> list[dict[str, Any]]:
    return [
        {"asked": {"row": row, "workload": workload, "seed": seed, "repeat": seed}, "result": result}
        for row, results in rows.items()
        for seed, result in results.items()
    ]


def test_points_follow_from_what_was_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measure, "RESULTS", tmp_path)
    first = measure.points(quick=False)
    assert len(first) == 3 * 2 * len(measure.ROWS) == 324
    assert {point.asked["seed"] for point in first} == {0, 1, 2}
    rows = {row: _worse_by([0.1, 0.1, 0.0]) for row in measure.ROWS}
    rows |= {seeds.BASE: _row(*BASE[:3]), "compressor=topk": _worse_by([0.0, 1.0, 0.5])}
    machine: dict[str, Any] = {}
    content = [{**point, "machine": machine} for point in _points(rows, "fashion")]
    Results(tmp_path, "real_data").path.write_text(json.dumps({"points": content}))
    more = {(p.asked["row"], p.asked["workload"], p.asked["seed"]) for p in measure.points(quick=False)}
    before = {(p.asked["row"], p.asked["workload"], p.asked["seed"]) for p in first}
    assert more - before == {(seeds.BASE, "fashion", 3), ("compressor=topk", "fashion", 3)} and before < more


def test_the_tables_say_each_verdict_and_what_is_not_possible() -> None:
    rows = {
        "compressor=far": _worse_by([2.0, 2.1, 2.4]),
        seeds.BASE: _row(*BASE[:4]),
        "compressor=close": _worse_by([0.1, 0.1, 0.0]),
        "strategy=lost": _row(0.88, None, None),
        "compressor=signum": {0: {"refused": "momentum=null: Signum takes the one momentum of SGD"}},
    }
    lines = tables.real_data(_points(rows, "fashion")).splitlines()
    assert lines[0] == "**fashion**" and "| accuracy |" in lines[2]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[4:8]]
    assert [row[0] for row in cells] == ["**baseline**", "`compressor=close`", "`compressor=far`", "`strategy=lost`"]
    assert cells[1][1:] == ["3", "87.93 ± 0.87", "-0.07 ± 0.14", "within half a point", "10.0"]
    assert [row[4] for row in cells] == ["-", "within half a point", "not within", "not within"]
    assert cells[3][2] == "diverged 2 times"
    assert lines[-1] == "- `compressor=signum` is not possible: momentum=null: Signum takes the one momentum of SGD"


def test_every_point_has_files_that_it_depends_on() -> None:
    benchmark = harness.Benchmark(measure, tables.real_data, order=1)
    for row in measure.ROWS:
        paths = harness.files_of(benchmark, {"row": row, "workload": "texts", "seed": 0, "repeat": 0})
        assert all(path.is_file() for path in paths)
        names = {path.name for path in paths}
        assert {"texts.yaml", "novels.py", "byte_model.py", "measure.py", "schedule.py"} <= names
