"""The check of the real dashboards over a real Prometheus, and with faults planted."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from testbed.analysis.__main__ import main
from testbed.analysis.archive.archive import update
from testbed.analysis.dashboard.check import check, read_dashboards
from testbed.analysis.dashboard.prometheus_queries import PrometheusClient, QueryError
from testbed.core.errors import EXIT_COMPLETED, EXIT_FAILED
from tests.unit.analysis.archived import finished_run, require_prometheus, served
from tests.unit.analysis.previewed import RUNS, asking, make_runs, planted, transforming

pytestmark = pytest.mark.timeout(300)
SCOPE = 'run=~"$run",compressor=~"$compressor",topo=~"$topo"'


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PrometheusClient]:
    require_prometheus()
    root = tmp_path_factory.mktemp("dashboards")
    (root / "runs").mkdir()
    make_runs(root / "runs")
    with served(update(root / "runs", root / "archive").data, root) as server:
        yield PrometheusClient(server.address)


def test_every_query_of_every_dashboard_is_answered(source: PrometheusClient) -> None:
    found = check(source)
    assert (found.faults, found.excused) == ([], [])
    boards = read_dashboards()
    assert found.queries == sum(len(panel.get("targets", ())) for one in boards for panel in one["panels"]) > 100
    assert found.runs == len(RUNS) + 1


PLANTED: dict[str, tuple[Any, str]] = {
    "Training loss": (asking(f'max by (run) (longhaul_train_loss{{rank="99",{SCOPE}}})'), "query A: no series"),
    "Step time": (asking("sum by (run"), "query A: .*parse error"),
    "Samples per second": (asking("longhaul_train_loss * 0 / 0"), "query A: .* series are not numbers throughout"),
    "Metric over elapsed time": (asking("longhaul_train_loss", legendFormat="{{name}}"), "label name, which"),
    "Waiting for others, by rank": (transforming({"id": "sortBy", "options": {}}), "no transformation sortBy"),
    "Where a step's time goes": (lambda panel: panel.update(type="piechart"), "no panel of type piechart"),
    "Scaling efficiency": (lambda panel: panel["fieldConfig"]["defaults"].update(unit="furlong"), "unit furlong"),
    "Round trip": (lambda panel: panel["targets"][0].update(hide=True), "query A: hide=True is not known"),
    "Best metric": (asking("longhaul_train_loss{run=~'$nobody'}"), "query A: .nobody is unknown"),
}


def test_planted_faults_are_found_all_at_once(source: PrometheusClient, tmp_path: Path) -> None:
    folder = planted(tmp_path / "boards", "Run", {title: change for title, (change, _) in PLANTED.items()})
    faults = [fault for fault in check(source, folder).faults if fault.startswith("Run, ")]
    for title, (_, words) in PLANTED.items():
        about = [fault for fault in faults if fault.startswith(f"Run, {title}")]
        assert about and any(re.search(words, fault) for fault in about), (title, about)
    assert {fault.split(":")[0].removesuffix(", query A") for fault in faults} == {f"Run, {title}" for title in PLANTED}
    assert all("\n" not in fault for fault in faults)


def test_an_excuse_does_not_hold_where_there_is_what_it_misses(source: PrometheusClient, tmp_path: Path) -> None:
    """The records have it, so a query for it that has no answer is wrong."""
    late = f'max by (run) (rate(longhaul_train_late_seconds_total{{rank="99",{SCOPE}}}[$__rate_interval]))'
    folder = planted(tmp_path / "boards", "Fidelity", {"Training late": asking(late)})
    found = check(source, folder)
    assert found.excused == [] and "Fidelity, Training late, query A: no series" in found.faults


@pytest.mark.tier("all")
def test_what_old_runs_lack_is_excused_and_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    require_prometheus()
    (tmp_path / "runs").mkdir()
    run = finished_run(tmp_path / "runs", steps=20, with_openmetrics=False)
    lines = run.events.read_text().splitlines(keepends=True)
    run.events.write_text("".join(line for line in lines if '"measurement"' not in line))
    with served(update(tmp_path / "runs", tmp_path / "archive").data, tmp_path) as server:
        found = check(PrometheusClient(server.address))
        assert main(["dashboard-check", "--prometheus", server.address]) == EXIT_FAILED
    assert {fault.split(", query")[0] for fault in found.faults} == {"Links, Target and measured"}, "nobody measured"
    whys = {line.rpartition(": ")[2] for line in found.excused}
    older = {why for why in whys if why.startswith("these records are older than")}
    assert whys - older == {
        "no run reached its target",
        "no run reached the accuracy chosen",
        "no configuration ran with two seeds",
        "no run without compression reached its target, to be compared with",
    }
    assert len(older) == 6
    said = capsys.readouterr().out
    assert "may be empty: Run, Time to target, query A: no run reached its target" in said


@pytest.mark.tier("all")
def test_the_commands_end_as_they_found(
    source: PrometheusClient, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["dashboard-check", "--prometheus", source.url]) == EXIT_COMPLETED
    assert capsys.readouterr().out.endswith("0 faults\n")


def test_nobody_answers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(QueryError, match="is it running"):
        PrometheusClient("http://127.0.0.1:9", time_limit_s=5).at("up", 0)
    assert main(["dashboard-check", "--prometheus", "http://127.0.0.1:9"]) == EXIT_FAILED
    assert "is it running" in capsys.readouterr().err
