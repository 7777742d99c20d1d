"""A real run as a reader of the live pages sees it: found in the table, opened, followed to its end."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

from testbed.core.record.run_directory import RUN_ID, RunDir
from tests.chromium import Chromium
from tests.slow.support import ROOT
from tests.waiting import wait_until

pytestmark = [pytest.mark.chromium, pytest.mark.needs_root, pytest.mark.timeout(900)]
LIMIT_S = 600.0
STEPS = 20
DELAY_S = 2.0
RUN = f"topo=wan100m workload=digits workers=2 steps={STEPS} evaluate_every=5 device=paced metrics_port=0"


def test_a_run_in_progress_is_followed_to_its_end(tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    runs.mkdir()
    command = [sys.executable, "-m", "testbed", "run", "--json", "--share", "--runs", str(runs), *RUN.split()]
    pages = [sys.executable, "-m", "testbed.analysis", "live", str(runs)]
    with (
        subprocess.Popen(pages, stdout=subprocess.PIPE, text=True) as server,
        Chromium(tmp_path / "chromium") as browser,
        subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) as running,
    ):
        try:
            assert server.stdout is not None and running.stdout is not None
            browser.open_url(f"{server.stdout.readline().strip()}/")
            wait_until(lambda: any(map(_is_begun, runs.iterdir())) or running.poll() is not None, "the run", LIMIT_S)
            assert running.poll() is None, "the run was refused"
            browser.wait_for("longhaulPage.rows === 1")
            assert browser.evaluate("document.querySelector('#rows .verdict').textContent") == "running"
            browser.click("#rows a")
            browser.wait_for("window.longhaulPage && longhaulPage.followed > 0")
            delays_s = _followed(browser, _run(runs))
            wait_until(lambda: running.poll() is not None, "the end of the run", LIMIT_S)
            browser.wait_for("longhaulPage.isEnded && longhaulPage.figures === 6")
            summary = json.loads(running.stdout.read())
        finally:
            running.terminate()
            server.kill()
        print(f"delays of {len(delays_s)} looks: {', '.join(f'{one:.2f}' for one in delays_s)} s")
        assert delays_s and min(delays_s) < DELAY_S
        state = browser.evaluate("document.querySelector('#state').innerText")
        assert state.startswith(f"{summary['verdict']} {summary['status']}.")
        assert browser.evaluate("longhaulPage.followed") == _lines(_run(runs))
        assert browser.evaluate("longhaulPage.verdicts") > 0
        assert browser.complaints == []


def _is_begun(path: Path) -> bool:
    return RUN_ID.fullmatch(path.name) is not None and RunDir(path).events.exists()


def _run(runs: Path) -> RunDir:
    (path,) = (path for path in runs.iterdir() if RUN_ID.fullmatch(path.name))
    return RunDir(path)


def _lines(run: RunDir) -> int:
    return run.events.read_bytes().count(b"\n")


def _followed(browser: Chromium, run: RunDir) -> list[float]:
    """Return how long the page took to show what was written, looked at again and again until the last step."""
    delays_s = []
    while f"step {STEPS} of {STEPS}" not in browser.evaluate("document.querySelector('#state').innerText"):
        written, begin_s = _lines(run), time.monotonic()
        browser.wait_for(f"longhaulPage.followed >= {written} || longhaulPage.isEnded")
        delays_s.append(time.monotonic() - begin_s)
        if run.summary.exists():
            break
        time.sleep(0.3)
    return delays_s
