"""`longhaul dashboard --check`: the analysis asked, and its own server gone afterwards."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from testbed.core.errors import EXIT_COMPLETED, InputError, MachineError
from testbed.core.server_lock import is_served
from testbed.orchestrator.cli.main import main
from testbed.orchestrator.dashboard.dashboard_check import check_dashboards
from testbed.orchestrator.machine.clone import CLONE
from tests.unit.analysis.archived import require_prometheus, served
from tests.unit.analysis.previewed import make_runs

pytestmark = pytest.mark.timeout(300)


@pytest.fixture
def runs(runs: Path) -> Path:
    require_prometheus()
    make_runs(runs)
    return runs


@pytest.mark.tier("all")
def test_the_dashboards_are_checked(runs: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    build = tmp_path / "build"
    assert check_dashboards(runs, build=build) == EXIT_COMPLETED
    assert capfd.readouterr().out.endswith("panels asked about 5 runs: 0 faults\n")
    assert not is_served(build / "archive" / "data"), "its server is gone"
    with served(build / "archive" / "data", tmp_path), pytest.raises(InputError, match="another Prometheus serves"):
        check_dashboards(runs, build=build)


def test_no_runs_and_no_prometheus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    require_prometheus()
    (tmp_path / "runs").mkdir()
    with pytest.raises(InputError, match="no finished runs"):
        check_dashboards(tmp_path / "runs", build=tmp_path / "build")
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(MachineError, match="prometheus"):
        check_dashboards(tmp_path / "runs", build=tmp_path / "build")


def test_the_command_line_has_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    asked: list[Path] = []
    monkeypatch.setattr(
        "testbed.orchestrator.dashboard.dashboard_check.check_dashboards", lambda runs: asked.append(runs) or 4
    )
    assert main(["dashboard", "--check", "--runs", str(tmp_path)]) == 4
    assert asked == [tmp_path]


@pytest.mark.parametrize(("words", "flags"), [([], ""), (["LIVE=0"], ""), (["LIVE=1"], "--live")])
def test_make_serves_what_is_live_where_it_is_asked(words: list[str], flags: str) -> None:
    clean = {key: value for key, value in os.environ.items() if key not in ("MAKEFLAGS", "MAKELEVEL", "LIVE")}
    call = ["make", "--dry-run", "dashboard", *words]
    done = subprocess.run(call, cwd=CLONE, env=clean, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1].partition("longhaul dashboard")[2].strip() == flags
