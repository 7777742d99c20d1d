"""From a clone to two runs overlaid: the three commands with which the README compares two, and what they lead to."""

from __future__ import annotations

import json
import re
import socket
import urllib.request
from urllib.parse import urljoin

import pytest

from testbed.core.errors import EXIT_COMPLETED, EXIT_INVALID
from testbed.core.server_lock import is_served
from testbed.core.spec.run_spec import DEFAULT_METRICS_PORT
from testbed.orchestrator.dashboard.dashboard_command import ARCHIVE_PORT, LIVE_PORT
from tests.slow.newcomer import Clone
from tests.slow.support import FIRST_SECTION, blocks_of, processes_with, serving, status_of

pytestmark = pytest.mark.needs_root
MAX_TRIES = 3
"""A busy machine makes a run invalid; pages leave it out, and a newcomer is told to make it again."""


def _require_free_ports() -> None:
    for port, what in ((ARCHIVE_PORT, "all runs"), (LIVE_PORT, "the live run"), (DEFAULT_METRICS_PORT, "a run")):
        with socket.socket() as asking:
            is_taken = asking.connect_ex(("127.0.0.1", port)) == 0
        assert not is_taken, f"port {port}, at which {what} would be served, is in use: end what listens there first"


def _make_run(clone: Clone, command: str) -> str:
    """The id of the run that it made, which is not invalid."""
    for _ in range(MAX_TRIES):
        before = clone.run_ids()
        done = clone.run(command, 400)
        said = f"{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
        assert status_of(done) in (EXIT_COMPLETED, EXIT_INVALID), said
        (made,) = clone.run_ids() - before
        if status_of(done) == EXIT_COMPLETED:
            return made
    raise AssertionError(f"{command}: {MAX_TRIES} times invalid: this machine is too busy\n{said}")


def _fetch(url: str) -> str:
    # no proxy of the environment's is asked the way to loopback
    with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(url, timeout=60) as answer:
        return str(answer.read().decode())


def _panel(page: str, title: str) -> str:
    (found,) = (section for section in page.split("<section ")[1:] if f"<h3>{title}</h3>" in section)
    return found


@pytest.mark.timeout(3000, func_only=True)
def test_three_commands_lead_to_two_runs_overlaid(clone: Clone) -> None:
    first, second, dashboard = blocks_of("README.md", FIRST_SECTION)[0]
    assert dashboard == "make dashboard"
    _require_free_ports()
    made = [_make_run(clone, first), _make_run(clone, second)]
    data = clone.path / "build" / "archive" / "data"
    with serving(dashboard, clone.path) as served:
        with clone.timed(dashboard):
            prometheus = served.wait_for(r"^all runs: +(http://\S+)", 300)
            index = served.wait_for(r"^pages: +(file://\S+)", 300)
        assert set(made) <= set(json.loads(_fetch(f"{prometheus}/api/v1/label/run/values"))["data"])
        link = re.search(r'<a href="([^"]+)">Compare</a>', _fetch(index))
        assert link, f"{index} leads to no page Compare"
        compare = _fetch(urljoin(index, link[1]))
        assert processes_with(f"--storage.tsdb.path={data}"), "what is looked for below is not what serves"
        assert served.interrupt(60) == EXIT_COMPLETED, served.said
    assert not processes_with(f"--storage.tsdb.path={data}") and not is_served(data)
    runs, curves = _panel(compare, "Runs"), _panel(compare, "Metric over elapsed time")
    for run_id in made:
        assert f"<td>{run_id}</td>" in runs or f">{run_id}</a></td>" in runs
        # of many runs a legend names the first few
        assert f"{run_id} accuracy</li>" in curves or " more</li>" in curves
