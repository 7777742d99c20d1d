"""What came of a sweep: rows by its axes but the seed, what gives no value, each form of it, its figures."""

from __future__ import annotations

import csv
import io
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from testbed.analysis.__main__ import main
from testbed.analysis.comparison.groups import Group
from testbed.analysis.comparison.sweep import read_sweep, text, to_csv, to_json
from testbed.analysis.record.curves import Curves
from testbed.core.errors import InputError
from testbed.core.pareto import front
from testbed.core.record.run_directory import RunDir
from tests.unit.analysis.compared import template, variant


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> RunDir:
    return template(tmp_path_factory.mktemp("template"))


def point(run: RunDir | None, **values: Any) -> dict[str, Any]:
    told = {key.replace("__", "."): str(value) for key, value in values.items()}
    return {"values": {**told, "steps": "60"}, "run_id": run and run.run_id, "state": "done"}


def asked(*points: dict[str, Any]) -> dict[str, Any]:
    return {"name": "made", "axes": ["compressor", "seed", "steps", "compressor.density"], "points": list(points)}


@pytest.fixture
def question(source: RunDir, runs: Path) -> dict[str, Any]:
    """`none` over two seeds, `topk` in two densities: one over three seeds of which one is invalid, one that failed."""
    none = [variant(source, runs, n, compressor="none", seed=n, time_s=10.0 + 2 * n) for n in range(2)]
    thin = [variant(source, runs, 10 + n, seed=n, time_s=20.0, density=0.01) for n in range(2)]
    thin.append(variant(source, runs, 12, seed=2, time_s=99.0, verdict="invalid"))
    failed = variant(source, runs, 20, density=0.1, status="failed", verdict="invalid")
    return asked(
        *(point(run, compressor="none", seed=n) for n, run in enumerate(none)),
        *(point(run, compressor="topk", seed=n, compressor__density=0.01) for n, run in enumerate(thin)),
        point(failed, compressor="topk", seed=0, compressor__density=0.1),
        point(None, compressor="topk", seed=1, compressor__density=0.1),
    )


def test_rows_are_those_of_the_axes_but_the_seed(question: dict[str, Any], runs: Path) -> None:
    sweep = read_sweep(question, runs)
    assert sweep.axes == ("compressor", "compressor.density") and sweep.common == {"steps": "60"}
    assert [dict(row.values) for row in sweep.rows] == [
        {"compressor": "none"},
        {"compressor": "topk", "compressor.density": "0.01"},
        {"compressor": "topk", "compressor.density": "0.1"},
    ]
    assert [dict(row.outcomes) for row in sweep.rows] == [
        {"valid": 2},
        {"valid": 2, "invalid": 1},
        {"failed": 1, "not made": 1},
    ]
    assert [row.seeds for row in sweep.rows] == [[0, 1], [0, 1], []]
    time_s = to_json(sweep)["rows"][0]["values"]["time_s"]
    assert (time_s["mean"], time_s["seeds"]) == (11.0, 2)
    assert time_s["high"] - time_s["mean"] == pytest.approx(12.706 * 2**0.5 / 2**0.5, rel=1e-4)
    assert to_json(sweep)["rows"][1]["values"]["time_s"]["mean"] == 20.0, "the invalid one gives no value"


def test_text_and_csv_say_the_same(question: dict[str, Any], runs: Path) -> None:
    sweep = read_sweep(question, runs)
    lines = text(sweep).splitlines()
    assert lines[0].split()[:5] == ["strategy", "compressor", "compressor.density", "seeds", "verdicts"]
    assert lines[1].split()[:4] == ["ddp", "none", "-", "2"] and "10, 12" in lines[1]
    assert lines[3].split()[:3] == ["ddp", "topk", "0.1"], "a run that failed still says of what it is"
    assert "2 valid, 1 invalid" in lines[2] and "1 failed, 1 not made" in lines[3]
    assert "steps 60." in lines and "Runs that are invalid, failed or not made give no value." in lines
    rows = list(csv.DictReader(io.StringIO(to_csv(sweep))))
    assert [row["time_s_mean"] for row in rows] == ["11.0", "20.0", ""]
    assert [row["compressor.density"] for row in rows] == ["", "0.01", "0.1"]
    assert [(row["valid"], row["failed"], row["not_made"]) for row in rows] == [
        *(("2", "0", "0"), ("2", "0", "0"), ("0", "1", "1"))
    ]


def test_the_kind_of_the_runs_is_said(source: RunDir, runs: Path) -> None:
    made = variant(source, runs, 1, compressor="none")
    predicted = variant(source, runs, 2, kind="simulated")
    alone = read_sweep(asked(point(made, compressor="none")), runs)
    assert "All runs are emulated." in text(alone).splitlines()
    both = read_sweep(asked(point(made, compressor="none"), point(predicted, compressor="topk")), runs)
    assert "Of the runs 1 are emulated, 1 are simulated." in text(both).splitlines()
    assert [row["kind"] for row in to_json(both)["rows"]] == ["emulated", "simulated"]
    assert [row["kind"] for row in to_json(read_sweep(asked(point(None, compressor="topk")), runs))["rows"]] == [None]


def test_two_points_that_ask_for_the_same_count_one_run(source: RunDir, runs: Path) -> None:
    one = variant(source, runs, 1, time_s=10.0)
    row = read_sweep(asked(point(one, compressor="topk"), point(one, compressor="topk")), runs).rows[0]
    assert (dict(row.outcomes), row.run_ids) == ({"valid": 2}, [one.run_id])


def test_the_folder_has_every_form_of_it(
    question: dict[str, Any], runs: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = runs / ".sweeps" / "made"
    folder.mkdir(parents=True)
    (folder / "old.svg").touch()
    monkeypatch.setattr(sys, "stdin", io.StringIO(json.dumps(question)))
    assert main(["sweep", "--runs", str(runs), "--output", str(folder)]) == 0
    out = capsys.readouterr().out
    assert (folder / "table.txt").read_text() == out
    assert json.loads((folder / "results.json").read_text())["name"] == "made"
    page = (folder / "report.html").read_text()
    assert "time to target over bytes until then" in page and "../../2025" in page
    kinds = ("accuracy_over_time", "accuracy_over_bytes", "time_to_target", "pareto")
    assert {path.name for path in folder.iterdir()} == {
        *("table.txt", "table.tex", "results.json", "results.csv", "report.html"),
        *(f"{kind}.svg" for kind in kinds),
    }
    assert all("<svg" in (folder / f"{kind}.svg").read_text() for kind in kinds)


def test_what_is_no_sweep_is_refused(runs: Path) -> None:
    for wrong in ({}, asked(), asked({"values": {}}), asked({"run_id": "20250101T000000Z-x", "values": {}})):
        with pytest.raises(InputError):
            read_sweep(wrong, runs)


def drawn(group: Group, *sent: float) -> tuple[Group, list[Curves]]:
    return group, [Curves(sent={("a-b", "a", "b"): [(100.0, value)]}) for value in sent]


def test_the_front_is_what_no_other_beats() -> None:
    assert front([(1, 9), (2, 4), (3, 4), (4, 5), (5, 1), (2, 4)]) == [(1, 9), (2, 4), (5, 1)]
    assert front([(3, 3)]) == [(3, 3)] and front([]) == []
