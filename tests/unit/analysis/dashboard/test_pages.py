"""Which pages are written of the dashboards, and what is said where some are not; without a Prometheus."""

from __future__ import annotations

import html
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from testbed.analysis.__main__ import main
from testbed.analysis.dashboard import preview_command
from testbed.analysis.dashboard.opened import Opened
from testbed.analysis.dashboard.preview_command import preview, read_dashboards
from testbed.analysis.dashboard.prometheus_queries import PrometheusClient
from testbed.core.errors import EXIT_COMPLETED, InputError

URL = "http://127.0.0.1:1"
BOARD = {"uid": "longhaul-run", "title": "Run", "panels": [], "time": {}, "templating": {"list": [{"name": "run"}]}}


@pytest.fixture
def boards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    def opened(dashboard: dict[str, Any], source: PrometheusClient, runs: Sequence[str]) -> Opened:
        return Opened(dashboard, source, {"run": runs[0]}, 0.0, 60.0, 60.0)

    monkeypatch.setattr(preview_command, "open_dashboard", opened)
    folder = tmp_path / "boards"
    folder.mkdir()
    (folder / "run.json").write_text(json.dumps(BOARD))
    return folder


def test_runs_that_get_no_page_of_their_own_are_named(
    boards: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(preview_command.preview, "__defaults__", ((), boards))
    runs = [f"<b>{number}" for number in range(14)]
    output = tmp_path / "pages"
    assert main(["preview", "--prometheus", URL, "--output", str(output), "--run", *runs]) == EXIT_COMPLETED
    assert len(list(output.glob("run*.html"))) == 12
    words = "Only the first 12 runs have a page of their own; without one: <b>12, <b>13."
    assert capsys.readouterr().err.splitlines() == [words]
    assert html.escape(words) in (output / "index.html").read_text()
    preview(PrometheusClient(URL), output, runs[:12], boards)
    assert "a page of their own" not in (output / "index.html").read_text()


def test_files_that_are_no_dashboards_are_named_all_at_once(boards: Path) -> None:
    for name, text in (("broken", "{"), ("list", "[]"), ("other", '{"uid": "x", "title": "y"}')):
        (boards / f"{name}.json").write_text(text)
    with pytest.raises(InputError) as caught:
        read_dashboards(boards)
    assert [fault.removeprefix(f"{boards}/") for fault in caught.value.faults] == [
        "broken.json: is no dashboard: broken.json is not JSON",
        "list.json: is no dashboard: list.json holds no object",
        "other.json: is no dashboard: has no panels, templating, time",
    ]
