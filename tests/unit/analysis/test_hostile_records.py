"""A record from elsewhere: whatever lies in it and whatever it claims, little is written, and nothing outside."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from testbed.analysis.__main__ import main
from testbed.analysis.record.openmetrics import write_openmetrics
from testbed.analysis.record.record import load
from testbed.analysis.record.samples import MAX_SERIES, series_of
from testbed.core.record.run_directory import RunDir
from tests.unit.analysis.synthetic import make_run

DERIVED = ("samples.parquet", "metrics.openmetrics", "report.html")
MOST_BYTES = 3_000_000


def finished(run: RunDir, capsys: pytest.CaptureFixture[str]) -> str:
    main(["finish", str(run.path)])
    return capsys.readouterr().err


def add(run: RunDir, *events: dict[str, Any] | str) -> None:
    with run.events.open("a") as file:
        file.writelines(f"{one if isinstance(one, str) else json.dumps(one)}\n" for one in events)


def test_derived_files_replace_what_was_planted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run, victim = make_run(tmp_path), tmp_path / "victim"
    victim.write_text("kept")
    for derived in DERIVED:
        (run.path / f".{derived}.part").symlink_to(victim)
    run.report.symlink_to(victim)
    run.samples.hardlink_to(victim)
    os.mkfifo(run.openmetrics)
    assert finished(run, capsys) == ""
    assert victim.read_text() == "kept"
    for name in DERIVED:
        assert (run.path / name).is_file() and not (run.path / name).is_symlink()
        assert (run.path / name).stat().st_nlink == 1


STEP = {"event": "step", "rank": 0, "step": 1, "loss": 1.0, "step_s": 1.0, "payload_bytes": 1, "samples": 1}
CLAIMS = {
    "long before": {**STEP, "t_s": -1e300},
    "for ever after": {**STEP, "t_s": 1e300},
    "9 years after": {**STEP, "t_s": 9 * 365 * 24 * 3600.0},
    "no time": '{"event": "host", "t_s": NaN, "cpu_idle_ratio": 0.5}',
    "endless": '{"event": "host", "t_s": 1' + "0" * 400 + ', "cpu_idle_ratio": 0.5}',
    "true": {**STEP, "t_s": True},
    "count": {**STEP, "t_s": 2.0, "payload_bytes": 10**300},
    "text": {**STEP, "t_s": 2.0, "payload_bytes": "1e308"},
    "label": {"event": "node", "t_s": 2.0, "node": ["a"], "cpu_s": 1},
}


@pytest.mark.parametrize("claim", CLAIMS)
def test_what_a_record_claims_makes_no_samples(tmp_path: Path, claim: str) -> None:
    run = make_run(tmp_path)
    sound = series_of(load(run.path))
    add(run, CLAIMS[claim])
    series = series_of(load(run.path))
    assert series.count <= sound.count + 20
    with (tmp_path / "text").open("w") as text:
        if claim == "9 years after":
            with pytest.raises(ValueError, match="samples: one of them has a time that cannot be"):
                write_openmetrics(load(run.path), series, text)
        else:
            write_openmetrics(load(run.path), series, text)
    assert (tmp_path / "text").stat().st_size < MOST_BYTES


def test_what_a_record_claims_does_not_fill_the_disk(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = make_run(tmp_path)
    add(run, *CLAIMS.values())
    said = finished(run, capsys)
    sizes = {path.name: path.stat().st_size for path in run.path.iterdir() if path.is_file()}
    assert sum(size for name, size in sizes.items() if name != "events.jsonl") < MOST_BYTES, sizes
    assert "events.jsonl: 5 events have a time that cannot be; left out" in said
    assert "metrics.openmetrics: ValueError" in said and {"report.html", "samples.parquet"} <= set(sizes), said
    assert not [name for name in sizes if name.startswith(".")]


def test_names_without_end_make_no_series_without_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert MAX_SERIES > 10_000
    monkeypatch.setattr("testbed.analysis.record.samples.MAX_SERIES", 1000)
    run = make_run(tmp_path)
    add(run, *({"event": "evaluation", "t_s": 2.0, "rank": 0, "name": f"n{i}", "value": 1.0} for i in range(1000)))
    with pytest.raises(ValueError, match="more than 1000 series"):
        series_of(load(run.path))


@pytest.mark.parametrize("start", ["-1", "1e300", "1" + "0" * 400, "NaN", '"soon"'])
def test_a_beginning_that_cannot_be_is_none(tmp_path: Path, start: str) -> None:
    run = make_run(tmp_path)
    run.provenance.write_text(f'{{"start_unix_s": {start}}}')
    assert load(run.path).start_unix_s == 1735787045, "of the run's name"


@pytest.mark.parametrize("name", ["events.jsonl", "spec.json", "network.json"])
def test_a_sparse_giant_is_not_read(tmp_path: Path, name: str) -> None:
    run = make_run(tmp_path)
    with (run.path / name).open("wb") as file:
        file.truncate(10**12)
    record = load(run.path)
    assert record.events == [] if name == "events.jsonl" else "no such file of ours" in record.faults[0]
