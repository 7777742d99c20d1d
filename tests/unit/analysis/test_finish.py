from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import duckdb
import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from testbed.analysis.__main__ import main
from testbed.analysis.record.openmetrics import write_openmetrics
from testbed.analysis.record.record import load
from testbed.analysis.record.samples import series_of
from testbed.core.record.run_directory import RunDir
from tests.unit.analysis.synthetic import RUN_ID, START_UNIX_S, make_run, make_spec

HOSTILE = 'top"k\\\n{}'


def finish(run: RunDir, capsys: pytest.CaptureFixture[str]) -> tuple[int, dict[str, int], str]:
    status = main(["finish", str(run.path)])
    said = capsys.readouterr()
    return status, json.loads(said.out), said.err


def rows(run: RunDir, where: str) -> list[tuple[float, float]]:
    query = f"SELECT t_s, value FROM '{run.samples}' WHERE {where} ORDER BY t_s"
    return duckdb.connect().execute(query).fetchall()


def openmetrics(run: RunDir) -> list[Any]:
    return list(text_string_to_metric_families(run.openmetrics.read_text()))  # type: ignore[no-untyped-call]


def test_parquet_holds_every_sample(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = make_run(tmp_path)
    status, counts, errors = finish(run, capsys)
    assert (status, errors) == (0, "")
    samples = duckdb.read_parquet(str(run.samples))
    columns = {name: str(kind) for name, kind in zip(samples.columns, samples.types, strict=True)}
    assert columns == {"t_s": "DOUBLE", "metric": "VARCHAR", "labels": "MAP(VARCHAR, VARCHAR)", "value": "DOUBLE"}
    assert len(samples.fetchall()) == counts["samples"]

    link = "labels['source'] = 'virginia' AND labels['target'] = 'oregon'"
    sent = rows(run, f"metric = 'longhaul_link_transmit_bytes_total' AND {link}")
    assert sent == [(float(second), 2500.0 * second) for second in range(61)]  # none before the first step

    steps = rows(run, "metric = 'longhaul_train_steps_total' AND labels['rank'] = '3'")[:3]
    assert steps == [(0.0, 0.0), (0.95, 1.0), (1.95, 2.0)]


def test_promtool_stores_every_sample(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    if shutil.which("promtool") is None:
        pytest.skip("promtool is not installed (apt-get install prometheus)")
    run = make_run(tmp_path, compressor=HOSTILE, nan_from=30)
    _, counts, _ = finish(run, capsys)
    command = ["promtool", "tsdb", "create-blocks-from", "openmetrics", str(run.openmetrics), str(tmp_path / "tsdb")]
    made = subprocess.run(command, capture_output=True, text=True, check=True)
    head, *blocks = made.stdout.splitlines()
    # ULID, min time, max time, duration, samples, ...: none of these cells holds a space.
    assert head.split()[:1] == ["BLOCK"]
    assert sum(int(block.split()[4]) for block in blocks) == counts["openmetrics_samples"]
    assert sum(int(block.split()[6]) for block in blocks) == counts["series"]


def test_the_strict_parser_reads_the_openmetrics(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = make_run(tmp_path, compressor=HOSTILE)
    _, counts, _ = finish(run, capsys)
    assert run.openmetrics.read_text().endswith("\n# EOF\n")
    samples = [sample for family in openmetrics(run) for sample in family.samples]
    assert len(samples) == counts["openmetrics_samples"]
    assert all(s.labels["run"] == RUN_ID and s.labels["compressor"] == HOSTILE for s in samples)
    at = Counter((s.name, tuple(sorted(s.labels.items())), str(s.timestamp)) for s in samples)
    assert max(at.values()) == 1
    first = next(s for s in samples if s.name == "longhaul_train_steps_total")
    assert (first.value, float(first.timestamp)) == (0.0, START_UNIX_S)


def test_slow_series_are_repeated_every_second(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = make_run(tmp_path)
    finish(run, capsys)
    families = {family.name: family for family in openmetrics(run)}
    points = [(float(s.timestamp) - START_UNIX_S, s.value) for s in families["longhaul_train_metric_ratio"].samples]
    assert [t_s for t_s, _ in points] == [*range(20, 61), 60.5]
    assert [value for t_s, value in points if 20 <= t_s < 40] == [pytest.approx(0.8 + 0.1 * 20 / 60)] * 20


def test_the_later_of_two_values_in_one_millisecond_stays(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    with run.events.open("a") as file:
        for late_s in (0.5, 0.25):
            file.write(json.dumps({"event": "host", "t_s": 30.0001, "sampler_late_s": late_s}) + "\n")
    points = series_of(load(run.path)).points["longhaul_sampler_late_seconds", ()]
    assert points[30_000] == 0.25


def test_what_is_asked_of_a_link_follows_its_changes(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    link = make_spec().topology.wan_links[0]
    way = {"name": link.name, "from": link.a, "to": link.b}
    changed = {"event": "change", "t_s": 2.5, "what": "set", **way, "before": {}, "after": {"delay_s": 0.5}}
    later = {"event": "link", "t_s": 3.0, **way, "wan": True, "rate_bit_s": 8e6}
    with run.events.open("a") as file:
        file.writelines(f"{json.dumps(event)}\n" for event in (changed, later))
    points = series_of(load(run.path)).points
    labels = (("link", link.name), ("source", link.a), ("target", link.b))
    assert points["longhaul_link_asked_delay_seconds", labels] == {0: link.forward.delay_s, 2500: 0.5}
    rates = points["longhaul_link_asked_bytes_per_second", labels]
    assert (rates[0], rates[3000]) == (link.forward.rate_bit_s / 8, 1e6)
    assert points["longhaul_link_configured_bytes_per_second", labels] == {0: link.forward.rate_bit_s / 8}


def test_a_run_can_be_moved_to_another_start(tmp_path: Path) -> None:
    record = load(make_run(tmp_path, without=("provenance.json",)).path)
    assert record.start_unix_s == 1735787045  # of the run's name, 2025-01-02T03:04:05Z
    with (tmp_path / "moved").open("w") as file:
        write_openmetrics(record, series_of(record), file, start_unix_s=1_577_836_800)
    assert " 1577836800.000\n" in (tmp_path / "moved").read_text()


@pytest.mark.parametrize("cut_bytes", [1, 20_000, 10**9])
def test_a_record_cut_anywhere_is_finished(tmp_path: Path, cut_bytes: int, capsys: pytest.CaptureFixture[str]) -> None:
    run = make_run(tmp_path, cut_bytes=cut_bytes, without=("network.json",))
    status, _, errors = finish(run, capsys)
    assert (status, errors) == (0, "")
    assert run.samples.exists() and run.openmetrics.exists() and run.report.exists()


@pytest.mark.parametrize(
    ("broken", "name"),
    [
        ("testbed.analysis.report.derived_files.write_parquet", "samples.parquet"),
        ("testbed.analysis.record.openmetrics.write_openmetrics", "metrics.openmetrics"),
        ("testbed.analysis.report.run_page.run_report", "report.html"),
    ],
)
def test_one_failure_costs_one_file(
    tmp_path: Path, broken: str, name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*_: object) -> None:
        raise OSError("no space left")

    monkeypatch.setattr(broken, fail)
    run = make_run(tmp_path)
    status, _, errors = finish(run, capsys)
    assert status == 4
    assert errors == f"{name}: OSError: no space left\n"
    left = {path.name for path in (run.samples, run.openmetrics, run.report) if path.exists()}
    assert left == {"samples.parquet", "metrics.openmetrics", "report.html"} - {name}
    assert not list(run.path.glob(".*"))


def test_broken_events_are_named_and_the_rest_is_kept(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = make_run(tmp_path)
    with run.events.open("a") as file:
        file.write('{"event": "link", "t_s": 70}\n')
    status, counts, errors = finish(run, capsys)
    assert status == 4
    assert "1 event" in errors
    assert counts["samples"] > 1000
    assert run.report.exists()


def test_the_summary_may_come_before_the_run_writes_it(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    summary = {"verdict": "suspect", "status": "completed", "reasons": ["slow link"], "kind": "emulated"}
    command = [sys.executable, "-m", "testbed.analysis", "finish", str(run.path), "--summary", "-"]
    done = subprocess.run(command, input=json.dumps(summary), capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert "Verdict: suspect" in run.report.read_text()
    archived = [line for line in run.openmetrics.read_text().splitlines() if line.startswith("longhaul_verdict")]
    values = {line.rsplit('verdict="', 1)[-1].split('"')[0]: float(line.split()[-2]) for line in archived[:3]}
    assert values == {"valid": 0, "suspect": 1, "invalid": 0}, archived
    assert len(archived) == 4 and float(archived[3].split()[-2]) == 1, "one reason, and each series once"
    info = [line for line in run.openmetrics.read_text().splitlines() if line.startswith("longhaul_run_info{")]
    assert info and all('verdict="suspect"' in line for line in info)


def test_what_is_no_run_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["finish", str(tmp_path)]) == 2
    assert "neither spec.json nor events.jsonl" in capsys.readouterr().err
