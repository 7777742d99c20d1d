"""Curves come from the samples of all runs by one query, and are those of the events."""

from __future__ import annotations

import functools
import json
import os
from pathlib import Path

import pytest

from testbed.analysis.comparison.comparison import compare
from testbed.analysis.figures.build import build
from testbed.analysis.figures.run_figures import wan_rate
from testbed.analysis.record import curves as curves_module
from testbed.analysis.record.curves import curves_of, from_events
from testbed.analysis.record.record import load
from testbed.analysis.record.samples import series_of
from testbed.analysis.report.derived_files import write_parquet
from testbed.core.record.run_directory import RunDir, write_json
from tests.counting import counted
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


def with_a_second_link(run: RunDir) -> RunDir:
    """Between the same places, over which a tenth goes."""
    spec = json.loads(run.spec.read_text())
    (link,) = (link for link in spec["topology"]["links"] if link["wan"])
    spec["topology"]["links"].append({**link, "name": "second"})
    write_json(run.spec, spec)
    events = [json.loads(line) for line in run.events.read_text().splitlines()]
    second = [
        {**event, "name": "second", "wire_bytes": event["wire_bytes"] / 10}
        for event in events
        if event["event"] == "link" and event["wan"]
    ]
    run.events.write_text("".join(json.dumps(event) + "\n" for event in [*events, *second]))
    return run


def test_two_links_between_the_same_places_are_added_up(source: RunDir, tmp_path: Path) -> None:
    record = load(with_a_second_link(variant(source, tmp_path, 1)).path)
    assert record.spec is not None and len(record.spec.topology.wan_links) == 2
    told = from_events(record)
    assert [told.wan_bytes_until(t_s) for t_s in (10.0, 10.5, 11.0)] == pytest.approx([49.5e3, 51.975e3, 54.45e3])
    with record.run.samples.open("w+b") as file:
        write_parquet(series_of(record), file)
    (found,) = curves_of([record])
    assert found.fault is None
    assert [found.wan_bytes_until(t_s) for t_s in (10.0, 10.5, 11.0)] == pytest.approx([49.5e3, 51.975e3, 54.45e3])
    labels = [one.label for panel in wan_rate(record).panels for one in panel.series]
    ways = ("oregon to virginia", "virginia to oregon")
    assert sorted(labels) == [f"{way} ({link})" for way in ways for link in ("oregon-virginia", "second")]


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
    figure = build([load(run.path)], "accuracy_over_time")
    assert figure.panels == () and any("its events cannot be drawn: KeyError" in note for note in figure.notes)


def test_runs_on_unlike_networks_of_one_name_share_no_panel(source: RunDir, tmp_path: Path) -> None:
    runs = [
        variant(source, tmp_path, 1, compressor="none", rtt_s=0.01, time_s=30.0),
        variant(source, tmp_path, 2, rtt_s=0.2),
        variant(source, tmp_path, 3, compressor="int8", rtt_s=0.2),
    ]
    records = [load(run.path) for run in runs]
    for kind in ("accuracy_over_time", "accuracy_over_bytes", "pareto"):
        panels = {panel.title: [one.label for one in panel.series] for panel in build(records, kind).panels}
        assert panels == {"topo.rtt=10 ms": ["none"], "topo.rtt=200 ms": ["topk", "int8"]}


@pytest.mark.tier("all")
def test_three_hundred_runs_are_compared_by_one_query_in_linear_work(
    source: RunDir, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    connection, asked = curves_module._connection, []
    monkeypatch.setattr(curves_module, "_connection", lambda paths: asked.append(len(paths)) or connection(paths))
    names = ("none", "topk", "int8", "powersgd", "fp16", "sz3")
    runs = [
        variant(source, tmp_path, number, events=False, compressor=names[number % 6], seed=number // 6)
        for number in range(300)
    ]
    calls = {}
    for count in (60, 300):
        records, loading = counted(lambda count=count: [load(run.path) for run in runs[:count]])
        comparison, comparing = counted(functools.partial(compare, records))
        found, drawing = counted(functools.partial(curves_of, records))
        calls[count] = loading, comparing, drawing
    assert [len(group.seeds()) for group in comparison.groups] == [50] * 6
    assert all(one.metric and one.sent and one.fault is None for one in found)
    assert asked == [60, 300]
    assert all(more < 6 * fewer for fewer, more in zip(*calls.values(), strict=True)), "as much more as there are more"
