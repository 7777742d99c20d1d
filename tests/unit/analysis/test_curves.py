"""Curves come from the samples of all runs by one query, and are those of the events."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from testbed.analysis import curves as curves_module
from testbed.analysis.comparison import compare
from testbed.analysis.comparison_figures import figures, mean_curve
from testbed.analysis.curves import curves_of, from_events
from testbed.analysis.load import load
from testbed.core.rundir import RunDir
from tests.unit.analysis.compared import template, variant


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> RunDir:
    return template(tmp_path_factory.mktemp("template"))


def test_samples_and_events_say_the_same(source: RunDir, tmp_path: Path) -> None:
    with_events, without = variant(source, tmp_path, 1), variant(source, tmp_path, 2, events=False)
    told = from_events(load(with_events.path))
    (found,) = curves_of([load(without.path)])
    assert (
        found.metric
        == told.metric
        == [(20, pytest.approx(0.8 + 0.1 / 3)), (40, pytest.approx(0.8 + 0.2 / 3)), (60, 0.9)]
    )
    assert {name: points[-1] for name, points in found.sent.items()} == {
        name: points[-1] for name, points in told.sent.items()
    }
    # 4500 B/s over both directions
    assert [x for x, _ in found.metric_over_wan_bytes()] == pytest.approx([90e3, 180e3, 270e3])
    assert found.metric_over_wan_bytes() == told.metric_over_wan_bytes()


def test_a_run_without_samples_is_read_from_its_events(source: RunDir, tmp_path: Path) -> None:
    runs = [variant(source, tmp_path, number) for number in range(4)]
    runs[1].samples.unlink()
    runs[2].samples.unlink()
    os.mkfifo(runs[2].samples)  # who opened it would wait for ever
    runs[3].samples.write_bytes(b"PAR1 is all there is of it")
    found = curves_of([load(run.path) for run in runs])
    assert [one.metric for one in found] == [found[0].metric] * 4
    assert [one.fault is None for one in found] == [True, True, True, False]
    assert found[3].fault is not None and found[3].fault.startswith(f"{runs[3].run_id}: samples.parquet cannot be read")


def test_a_directory_whose_name_is_a_pattern_means_itself(source: RunDir, tmp_path: Path) -> None:
    run = variant(source, tmp_path / "a[b]*", 1)
    (found,) = curves_of([load(run.path)])
    assert found.metric


def test_the_reader_reads_its_files_and_nothing_else(source: RunDir, tmp_path: Path) -> None:
    import duckdb

    (tmp_path / "secret.csv").write_text("a\n1\n")
    connection = curves_module._connection([str(source.samples)])
    with pytest.raises(duckdb.PermissionException):
        connection.execute(f"SELECT * FROM read_csv('{tmp_path / 'secret.csv'}')")


def test_broken_events_are_named_and_not_drawn(source: RunDir, tmp_path: Path) -> None:
    run = variant(source, tmp_path, 1)
    run.samples.unlink()
    run.events.write_text('{"event": "evaluation", "t_s": 1}\n')
    drawn, faults = figures(compare([load(run.path)]))
    assert drawn == [] and len(faults) == 1 and "its events cannot be drawn: KeyError" in faults[0]


def test_the_mean_is_over_the_stretch_that_all_cover() -> None:
    mean = mean_curve([[(0.0, 0.0), (10.0, 10.0)], [(2.0, 4.0), (12.0, 14.0)]])
    assert mean[0] == (2.0, 3.0) and mean[-1][0] == 10.0 and mean[-1][1] == pytest.approx(11.0)
    assert mean_curve([[(0.0, 1.0), (1.0, 1.0)], [(2.0, 1.0), (3.0, 1.0)]]) == []
    assert mean_curve([[(1.0, 5.0)], [(1.0, 7.0)]], "log")[0] == (1.0, 6.0)


def test_three_hundred_runs_are_compared_by_one_query_in_seconds(
    source: RunDir, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    connection, asked = curves_module._connection, []
    monkeypatch.setattr(curves_module, "_connection", lambda paths: asked.append(len(paths)) or connection(paths))
    names = ("none", "topk", "int8", "powersgd", "fp16", "sz3")
    runs = [
        variant(source, tmp_path, number, events=False, compressor=names[number % 6], seed=number // 6)
        for number in range(300)
    ]
    started_s = time.process_time()  # other tests take the cores too
    records = [load(run.path) for run in runs]
    comparison = compare(records)
    table_s = time.process_time() - started_s
    found = curves_of(records)
    took_s = time.process_time() - started_s
    assert [len(group.seeds()) for group in comparison.groups] == [50] * 6
    assert all(one.metric and one.sent and one.fault is None for one in found)
    assert asked == [300]
    # ten times as long as they take on an idle machine
    assert table_s < 30.0 and took_s < 80.0, f"table {table_s:.2f} s, with curves {took_s:.2f} s"
