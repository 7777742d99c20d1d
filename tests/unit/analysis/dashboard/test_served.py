"""Pages and checks of the real dashboards over a real Prometheus, and both with faults planted.

Screenshots stay under build/screenshots, to be looked at.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from testbed.analysis.__main__ import main
from testbed.analysis.archive.archive import update
from testbed.analysis.dashboard.check import check
from testbed.analysis.dashboard.preview_command import preview, read_dashboards
from testbed.analysis.dashboard.prometheus_queries import PrometheusClient, QueryError
from testbed.core.errors import EXIT_COMPLETED, EXIT_FAILED, InputError
from tests.chromium import Chromium
from tests.unit.analysis.archived import finished_run, require_prometheus, served
from tests.unit.analysis.previewed import INVALID, RUNS, asking, make_runs, planted, run_id, transforming

pytestmark = pytest.mark.timeout(300)
SCREENSHOTS = Path(__file__).resolve().parents[4] / "build" / "screenshots"
BOARDS = ("compare", "fidelity", "links", "run", "sweep")
WIDTHS = (360, 800, 1400)
NARROW_LETTERS_PX = 6.5
SCOPE = 'run=~"$run",compressor=~"$compressor",topo=~"$topo"'


@dataclass(frozen=True)
class Gallery:
    source: PrometheusClient
    pages: Path

    def text(self, name: str) -> str:
        return (self.pages / f"{name}.html").read_text()


@pytest.fixture(scope="module")
def gallery(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gallery]:
    require_prometheus()
    root = tmp_path_factory.mktemp("preview")
    (root / "runs").mkdir()
    make_runs(root / "runs")
    with served(update(root / "runs", root / "archive").data, root) as server:
        source = PrometheusClient(server.address)
        written, faults = preview(source, root / "pages")
        assert faults == []
        assert [path.stem for path in written] == ["index", *BOARDS]
        yield Gallery(source, root / "pages")


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chromium]:
    with Chromium(tmp_path_factory.mktemp("chromium")) as chromium:
        yield chromium


def test_every_query_of_every_dashboard_is_answered(gallery: Gallery) -> None:
    found = check(gallery.source)
    assert (found.faults, found.excused) == ([], [])
    boards = read_dashboards()
    assert found.queries == sum(len(panel.get("targets", ())) for one in boards for panel in one["panels"]) > 100
    assert found.runs == len(RUNS) + 1


def test_no_panel_of_a_page_is_empty(gallery: Gallery) -> None:
    for name in BOARDS:
        text = gallery.text(name)
        assert "No data" not in text and "NaN" not in text and 'class="fault"' not in text
        panels = next(one for one in read_dashboards() if one["uid"] == f"longhaul-{name}")["panels"]
        assert text.count("<section") == sum(panel["type"] != "row" for panel in panels)


def test_a_page_shows_what_the_runs_were(gallery: Gallery) -> None:
    run = gallery.text("run")
    assert f"The first 5 minutes of {INVALID}" in run, "of one run the newest, as Grafana opens it"
    assert ">10 s</b>" in run and ">invalid</b>" in run and ">6 ×</b>" in run
    compare = gallery.text("compare")
    assert "The first 5 minutes of 4 runs" in compare and INVALID not in compare, "invalid runs are left out"
    assert INVALID in gallery.text("fidelity")
    assert "1.91 ×" in gallery.text("sweep"), "42 s without compression, 22 s with"


@pytest.mark.tier("all")
def test_runs_can_be_chosen_and_are_linked(gallery: Gallery, tmp_path: Path) -> None:
    chosen = [run_id("topk", 1), INVALID]
    written, faults = preview(gallery.source, tmp_path, chosen)
    assert faults == []
    assert {"run.html", "run-2.html"} < {path.name for path in written}
    compare = (tmp_path / "compare.html").read_text()
    assert all(run in compare for run in chosen), "an invalid one too, if it is asked for"
    assert run_id("none", 1) not in compare
    assert f'<a href="run-2.html">{INVALID}</a>' in compare


def test_a_run_that_is_not_there_is_named(gallery: Gallery, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["preview", "--prometheus", gallery.source.url, "--output", str(tmp_path), "--run", "a", "b"]
    assert main(arguments) == InputError.exit_status
    assert [line.split(":")[0] for line in capsys.readouterr().err.splitlines()] == ["--run a", "--run b"]


@pytest.mark.tier("all")
def test_a_second_page_is_the_same_byte_for_byte(gallery: Gallery, tmp_path: Path) -> None:
    preview(gallery.source, tmp_path)
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {
        path.name: path.read_text() for path in gallery.pages.iterdir()
    }


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


def test_planted_faults_are_found_all_at_once(gallery: Gallery, tmp_path: Path) -> None:
    folder = planted(tmp_path / "boards", "Run", {title: change for title, (change, _) in PLANTED.items()})
    faults = [fault for fault in check(gallery.source, folder).faults if fault.startswith("Run, ")]
    for title, (_, words) in PLANTED.items():
        about = [fault for fault in faults if fault.startswith(f"Run, {title}")]
        assert about and any(re.search(words, fault) for fault in about), (title, about)
    assert {fault.split(":")[0].removesuffix(", query A") for fault in faults} == {f"Run, {title}" for title in PLANTED}
    assert all("\n" not in fault for fault in faults)


def test_a_page_says_in_a_panel_what_is_wrong_with_it(gallery: Gallery, tmp_path: Path) -> None:
    changes = {title: PLANTED[title][0] for title in ("Waiting for others, by rank", "Step time")}
    _, faults = preview(gallery.source, tmp_path, folder=planted(tmp_path / "boards", "Run", changes))
    assert len(faults) == 2 and "no transformation sortBy is known here" in faults[1]
    text = (tmp_path / "run.html").read_text()
    assert text.count('class="fault"') == 2 and "<svg" in text


def test_an_excuse_does_not_hold_where_there_is_what_it_misses(gallery: Gallery, tmp_path: Path) -> None:
    """The records have it, so a query for it that has no answer is wrong."""
    late = f'max by (run) (rate(longhaul_train_late_seconds_total{{rank="99",{SCOPE}}}[$__rate_interval]))'
    folder = planted(tmp_path / "boards", "Fidelity", {"Training late": asking(late)})
    found = check(gallery.source, folder)
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
        _, faults = preview(PrometheusClient(server.address), tmp_path / "pages")
    assert {fault.split(", query")[0] for fault in found.faults} == {"Links, Asked and measured"}, "nobody measured"
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
    assert faults == [] and "No data: no run reached its target" in (tmp_path / "pages" / "run.html").read_text()


@pytest.mark.tier("all")
def test_the_commands_end_as_they_found(gallery: Gallery, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["dashboard-check", "--prometheus", gallery.source.url]) == EXIT_COMPLETED
    assert capsys.readouterr().out.endswith("0 faults\n")
    assert main(["preview", "--prometheus", gallery.source.url, "--output", str(tmp_path / "new")]) == EXIT_COMPLETED
    assert capsys.readouterr().out == f"{tmp_path / 'new' / 'index.html'}\n"


def test_nobody_answers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(QueryError, match="is it running"):
        PrometheusClient("http://127.0.0.1:9", time_limit_s=5).at("up", 0)
    assert main(["dashboard-check", "--prometheus", "http://127.0.0.1:9"]) == EXIT_FAILED
    assert "is it running" in capsys.readouterr().err


@pytest.mark.chromium
@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", ["index", *BOARDS])
def test_a_page_fits_its_window(browser: Chromium, gallery: Gallery, name: str, width: int) -> None:
    browser.complaints.clear()
    browser.open(gallery.pages / f"{name}.html", width)
    browser.screenshot(SCREENSHOTS / f"preview-{name}-{width}.png")
    assert browser.complaints == [], "a policy was broken, or something was asked for that is not in the page"
    assert browser.evaluate("document.documentElement.scrollWidth") <= width, "the page itself scrolls sideways"
    wide = "[...document.querySelectorAll('.plot svg')].map(s => s.getBoundingClientRect().width)"
    assert all(one > 100 for one in browser.evaluate(wide))
    letters = "[...document.querySelectorAll('svg text')].map(t => t.getBoundingClientRect().height)"
    assert min(browser.evaluate(letters), default=10) > NARROW_LETTERS_PX


@pytest.mark.chromium
def test_panels_lie_where_the_grid_has_them(browser: Chromium, gallery: Gallery) -> None:
    """Side by side on a screen, one below another on a phone; nowhere one over another."""
    found = "[...document.querySelectorAll('.panel')].map(panel => panel.getBoundingClientRect())"
    boxes = f"{found}.map(r => [r.x, r.y, r.right, r.bottom])"
    (board,) = (one for one in read_dashboards() if one["title"] == "Compare")
    grids = {panel["id"]: panel["gridPos"] for panel in board["panels"] if panel["type"] != "row"}
    order = sorted(grids.values(), key=lambda grid: (grid["y"], grid["x"]))
    browser.open(gallery.pages / "compare.html", 1400)
    found = browser.evaluate(boxes)
    width = max(right for *_, right, _ in found) - min(x for x, *_ in found)
    for grid, (x, _, right, _) in zip(order, found, strict=True):
        assert (right - x) / width == pytest.approx(grid["w"] / 24, abs=0.01)
        assert x / width == pytest.approx(grid["x"] / 24, abs=0.03)
    for (x, y, right, bottom), (x2, y2, right2, bottom2) in pairwise(found):
        assert right <= x2 or right2 <= x or bottom <= y2 or bottom2 <= y
    browser.open(gallery.pages / "compare.html", 360)
    phone = browser.evaluate(boxes)
    assert all(above[3] <= below[1] for above, below in pairwise(phone))


@pytest.mark.chromium
def test_no_label_of_a_figure_is_cut_off(browser: Chromium, gallery: Gallery) -> None:
    cut = (
        "[...document.querySelectorAll('.plot svg')].flatMap(s => {const b = s.getBoundingClientRect();"
        " return [...s.querySelectorAll('text')].filter(t => {const r = t.getBoundingClientRect();"
        " return r.left < b.left - 1 || r.right > b.right + 1 || r.bottom > b.bottom + 1})"
        ".map(t => t.textContent)})"
    )
    for name in BOARDS:
        browser.open(gallery.pages / f"{name}.html", 1400)
        assert browser.evaluate(cut) == []
