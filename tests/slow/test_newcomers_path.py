"""From a clone to two runs overlaid: the three commands with which the README compares two, and what they lead to."""

from __future__ import annotations

import json
import socket
import urllib.request
from typing import Any

import pytest

from testbed.core.errors import EXIT_COMPLETED, EXIT_INVALID
from testbed.core.server_lock import is_served
from testbed.core.spec.run_spec import DEFAULT_METRICS_PORT
from testbed.orchestrator.dashboard.dashboard_command import ARCHIVE_PORT, LIVE_PORT, PAGES_PORT
from tests.slow.newcomer import Clone
from tests.slow.support import FIRST_SECTION, blocks_of, processes_with, serving, status_of

pytestmark = pytest.mark.needs_root
RUN_LIMIT_S = 1200.0
"""Of one run, whose pilot takes a larger dilation where others need the cores."""
MAX_TRIES = 3
"""A busy machine makes a run invalid; pages leave it out, and a newcomer is told to make it again."""


def _require_free_ports() -> None:
    named = ((PAGES_PORT, "the pages"), (ARCHIVE_PORT, "all runs"), (LIVE_PORT, "the live run"))
    for port, what in (*named, (DEFAULT_METRICS_PORT, "a run")):
        with socket.socket() as asking:
            is_taken = asking.connect_ex(("127.0.0.1", port)) == 0
        assert not is_taken, f"port {port}, at which {what} would be served, is in use: end what listens there first"


def _make_run(clone: Clone, command: str) -> str:
    """The id of the run that it made, which is not invalid."""
    for _ in range(MAX_TRIES):
        before = clone.run_ids()
        done = clone.run(command, RUN_LIMIT_S)
        said = f"{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
        assert status_of(done) in (EXIT_COMPLETED, EXIT_INVALID), said
        (made,) = clone.run_ids() - before
        if status_of(done) == EXIT_COMPLETED:
            return made
    raise AssertionError(f"{command}: {MAX_TRIES} times invalid: this machine is too busy\n{said}")


def _fetch(url: str, asked: object = None) -> Any:
    """Return what a server answers, as JSON; `asked` is sent as JSON if there is something."""
    body = None if asked is None else json.dumps(asked).encode()
    # no proxy of the environment's is asked the way to loopback
    with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(url, body, timeout=60) as answer:
        return json.loads(answer.read())


@pytest.mark.timeout(2 * MAX_TRIES * RUN_LIMIT_S, func_only=True)
def test_three_commands_lead_to_two_runs_overlaid(clone: Clone) -> None:
    first, second, dashboard = blocks_of("README.md", FIRST_SECTION)[0]
    assert dashboard == "make dashboard"
    _require_free_ports()
    made = [_make_run(clone, first), _make_run(clone, second)]
    data = clone.path / "build" / "archive" / "data"
    with serving(dashboard, clone.path) as served:
        with clone.timed(dashboard):
            pages = served.wait_for(r"^pages: +(http://127\.0\.0\.1:\d+)", 300)
            prometheus = served.wait_for(r"^all runs: +(http://\S+)", 300)
        assert set(made) <= set(_fetch(f"{prometheus}/api/v1/label/run/values")["data"])
        table = _fetch(f"{pages}/api/runs")
        overlaid = _fetch(f"{pages}/api/figure", {"runs": made, "kind": "accuracy_over_time"})
        assert processes_with(f"--storage.tsdb.path={data}"), "what is looked for below is not what serves"
        assert served.interrupt(60) == EXIT_COMPLETED, served.said
    assert not processes_with(f"--storage.tsdb.path={data}") and not is_served(data)
    assert set(made) <= {row[table["fields"].index("run_id")] for row in table["rows"]}
    (panel,) = overlaid["panels"]
    drawn = [trace["meta"]["run_ids"] for trace in panel["data"] if trace.get("legendgroup")]
    assert sorted(drawn) == sorted([run_id] for run_id in made)
