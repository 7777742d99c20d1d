"""`longhaul dashboard`: live pages over all runs, and their archive for Grafana where there is a Prometheus.

Serves until it is stopped. Nothing stays behind then but the archive under `build/`, from which the next call goes on.
"""

from __future__ import annotations

import functools
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from testbed.core.errors import EXIT_COMPLETED, InputError, MachineError
from testbed.core.processes import end_with
from testbed.core.spec.run_spec import DEFAULT_METRICS_PORT
from testbed.orchestrator.dashboard.page_servers import PagesServer, grafana
from testbed.orchestrator.dashboard.prometheus_server import Server
from testbed.orchestrator.dashboard.server_process import ServerProcess
from testbed.orchestrator.machine.checks import binary
from testbed.orchestrator.machine.clone import CLONE, environment
from testbed.orchestrator.machine.ownership import give_to_caller
from testbed.orchestrator.terminal.terminal import tell

PAGES_PORT, ARCHIVE_PORT, LIVE_PORT = 9099, 9091, 9090
BUILD = CLONE / "build"
DASHBOARDS = CLONE / "dashboards"
_WATCH_S = 0.5
_FLAGS = ("--pages-port", "--port", "--live-port")


def dashboard(
    runs_root: Path,
    *,
    live: bool = False,
    serve: bool = True,
    pages_port: int = PAGES_PORT,
    port: int = ARCHIVE_PORT,
    live_port: int = LIVE_PORT,
    build: Path = BUILD,
) -> int:
    """Serve the live pages until SIGINT or SIGTERM, and where there is a Prometheus the archive of all runs too.

    Args:
        serve: False brings the archive up to date and no more.

    Returns:
        The exit status; the analysis's own where it could not make the archive.

    Raises:
        InputError: a port is taken; with `serve` False also, there are no runs.
        MachineError: with `serve` False or `live`, Prometheus is not installed.
        RunError: a server ended by itself.
    """
    pages = PagesServer(runs_root, pages_port, build / "pages.log")
    lacks = _lacks(serve=serve)
    servers = _servers(build, port, live_port if live else None) if serve and not lacks else []
    _require([pages, *servers] if serve else [], [] if serve and not live else lacks)
    try:
        if not serve:
            status, counts = _update_archive(runs_root, build / "archive")
            if status == EXIT_COMPLETED and not counts["runs"]:
                raise InputError(f"no finished runs in {runs_root}: make one first, as in make experiment TOPO=wan1g")
            if status == EXIT_COMPLETED:
                tell(f"archive: {counts['text']}")
            return status
        return _serve(pages, servers, lacks, runs_root, build)
    finally:
        if build.exists():
            give_to_caller(build)


def _servers(build: Path, port: int, live_port: int | None) -> list[Server]:
    """Two, since a server that scrapes throws away what it has just scraped when somebody adds blocks to its data."""
    archive = build / "archive"
    config = DASHBOARDS / "prometheus"
    log = archive / "prometheus.log"
    servers = [Server("archive", config / "archive.yml", archive / "data", port, log, keep="100y")]
    if live_port is not None:
        live = build / "live"
        servers.append(Server("live", config / "live.yml", live / "data", live_port, live / "prometheus.log"))
    return servers


def _lacks(*, serve: bool) -> list[str]:
    """Return a line for each program of Prometheus that is not installed."""
    checks = [binary("promtool", "it makes the archive of all runs", "prometheus")]
    if serve:
        checks.append(binary("prometheus", "it serves what the dashboards show", "prometheus"))
    return [check.line for check in checks if not check.ok]


def _require(servers: Sequence[ServerProcess], lacks: Sequence[str]) -> None:
    """Raises:
    InputError, MachineError: with every fault at once, before anything is made.
    """
    faults = [fault for server, flag in zip(servers, _FLAGS, strict=False) if (fault := server.fault(flag))]
    given = [(server.port, flag) for server, flag in zip(servers, _FLAGS, strict=False) if server.port]
    for port in dict.fromkeys(port for port, _ in given):
        flags = [flag for other, flag in given if other == port]
        if len(flags) > 1:
            faults.append(f"{' and '.join(flags)} {port}: must be different ports")
    if faults:
        raise InputError(*faults, *lacks)
    if lacks:
        raise MachineError(*lacks)


def _update_archive(runs_root: Path, archive: Path) -> tuple[int, dict[str, Any]]:
    """By the analysis, in a process of its own, which says on standard error what it leaves out."""
    command = [sys.executable, "-m", "testbed.analysis", "archive", str(runs_root), "--output", str(archive), "--json"]
    done = subprocess.run(
        command,
        stdout=subprocess.PIPE,
        text=True,
        env=environment(),
        start_new_session=True,
        preexec_fn=functools.partial(end_with, os.getpid()),
        check=False,
    )
    return done.returncode, json.loads(done.stdout) if done.returncode == EXIT_COMPLETED else {}


def _serve(pages: PagesServer, servers: Sequence[Server], lacks: Sequence[str], runs_root: Path, build: Path) -> int:
    """Serve the pages at once, and the rest when the archive is up to date."""
    with _stop() as stopped, ExitStack() as stack:
        _start([pages], stack)
        tell(f"pages:     {pages.address}  all runs, and the one that goes on")
        sys.stdout.flush()
        running: list[ServerProcess] = [pages]
        if servers:
            status, counts = _update_archive(runs_root, build / "archive")
            if status != EXIT_COMPLETED:
                return status
            tell(f"archive: {counts['text']}")
            found = grafana(build) if not stopped.is_set() else None
            running += [*servers, *([found] if found else [])]
            _start(running[1:], stack)
            for line in _addresses(servers, found):
                tell(line)
        for line in lacks:
            tell(f"no Prometheus, so nothing for Grafana: {line}")
        tell("Ctrl-C ends it.")
        sys.stdout.flush()
        while not stopped.wait(_WATCH_S):
            for server in running:
                server.check()
    return EXIT_COMPLETED


def _start(servers: Sequence[ServerProcess], stack: ExitStack) -> None:
    """Start servers, and wait until all answer."""
    for server in servers:
        stack.callback(server.stop)
        server.start()
    for server in servers:
        server.wait_until_ready()


@contextmanager
def _stop() -> Iterator[threading.Event]:
    """Set by the first SIGINT, SIGTERM or SIGHUP, which then end nothing half-way."""
    asked = threading.Event()
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = {number: signal.signal(number, lambda *_: asked.set()) for number in numbers}
    try:
        yield asked
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _addresses(servers: Sequence[Server], found: ServerProcess | None) -> Iterator[str]:
    archive, *live = servers
    yield f"all runs:  {archive.address}  each begins at 2020-01-01 00:00:00 UTC: choose that time, and the zone UTC"
    for server in live:
        scraped = f"127.0.0.1:{DEFAULT_METRICS_PORT}"
        yield f"live:      {server.address}  the run that is going, scraped each second at {scraped}"
    shown = DASHBOARDS.relative_to(CLONE) if DASHBOARDS.is_relative_to(CLONE) else DASHBOARDS
    if found is not None:
        yield f"grafana:   {found.address}"
    else:
        yield f"A Grafana you have: data sources and provider in {shown}/provisioning, dashboards in {shown}/grafana."
        compose = f"docker compose -f {shown}/docker-compose.yml up"
        yield f"Where docker can fetch images: {compose} --no-deps grafana beside this, or without --no-deps after it."
    if [server.port for server in servers] != [ARCHIVE_PORT, LIVE_PORT][: len(servers)]:
        yield f"  The data sources name the ports {ARCHIVE_PORT} and {LIVE_PORT}: put in those above."
