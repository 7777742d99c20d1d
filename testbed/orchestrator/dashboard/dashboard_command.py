"""`longhaul dashboard`: the archive of all runs, brought up to date and served; with `--live` the run that goes on too.

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
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from testbed.core.errors import EXIT_COMPLETED, InputError, MachineError
from testbed.core.processes import end_with
from testbed.core.spec.run_spec import DEFAULT_METRICS_PORT
from testbed.orchestrator.dashboard.prometheus_server import Server
from testbed.orchestrator.machine.checks import binary
from testbed.orchestrator.machine.clone import CLONE, environment
from testbed.orchestrator.machine.ownership import give_to_caller
from testbed.orchestrator.terminal.terminal import tell

ARCHIVE_PORT, LIVE_PORT = 9091, 9090
BUILD = CLONE / "build"
DASHBOARDS = CLONE / "dashboards"
_WATCH_S = 0.5


def dashboard(
    runs_root: Path,
    *,
    live: bool = False,
    serve: bool = True,
    port: int = ARCHIVE_PORT,
    live_port: int = LIVE_PORT,
    build: Path = BUILD,
    when_served: Callable[[Server], object] | None = None,
) -> int:
    """Bring the archive up to date and, unless `serve` is False, serve it until SIGINT or SIGTERM.

    Args:
        when_served: called once with the archive's server, when it answers and there are runs.

    Returns:
        The exit status; the analysis's own where it could not make the archive.

    Raises:
        InputError: a port is taken, or there are no runs.
        MachineError: Prometheus is not installed.
        RunError: a server ended by itself.
    """
    servers = _servers(build, port, live_port if live else None) if serve else []
    _require(servers, ("--port", "--live-port"))
    try:
        status, counts = _update_archive(runs_root, build / "archive")
        if status != EXIT_COMPLETED:
            return status
        if not counts["runs"] and not live:
            raise InputError(f"no finished runs in {runs_root}: make one first, as in make experiment TOPO=wan1g")
        tell(f"archive: {counts['text']}")
        if servers:
            _serve(servers, when_served if counts["runs"] else None)
        return EXIT_COMPLETED
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


def _require(servers: Sequence[Server], flags: Sequence[str]) -> None:
    """Raises:
    InputError, MachineError: with every fault at once, before anything is made.
    """
    checks = [binary("promtool", "it makes the archive of all runs", "prometheus")]
    if servers:
        checks.append(binary("prometheus", "it serves what the dashboards show", "prometheus"))
    lacks = [check.line for check in checks if not check.ok]
    faults = [fault for server, flag in zip(servers, flags, strict=False) if (fault := server.fault(flag))]
    ports = [server.port for server in servers if server.port]
    if len(set(ports)) < len(ports):
        faults.append(f"{' and '.join(flags)} {ports[0]}: must be two different ports")
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


def _serve(servers: Sequence[Server], when_served: Callable[[Server], object] | None) -> None:
    with _stop() as stopped, ExitStack() as stack:
        for server in servers:
            server.log.parent.mkdir(parents=True, exist_ok=True)
            stack.callback(server.stop)
            server.start()
        for server in servers:
            server.wait_until_ready()
        for line in _addresses(servers):
            tell(line)
        sys.stdout.flush()
        if when_served is not None:
            when_served(servers[0])
            sys.stdout.flush()
        while not stopped.wait(_WATCH_S):
            for server in servers:
                server.check()


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


def _addresses(servers: Sequence[Server]) -> Iterator[str]:
    archive, *live = servers
    yield f"all runs:  {archive.address}  each begins at 2020-01-01 00:00:00 UTC: choose that time, and the zone UTC"
    for server in live:
        scraped = f"127.0.0.1:{DEFAULT_METRICS_PORT}"
        yield f"live:      {server.address}  the run that is going, scraped each second at {scraped}"
    shown = DASHBOARDS.relative_to(CLONE)
    yield f"A Grafana you have: data sources and provider in {shown}/provisioning, dashboards in {shown}/grafana."
    if [server.port for server in servers] != [ARCHIVE_PORT, LIVE_PORT][: len(servers)]:
        yield f"  The data sources name the ports {ARCHIVE_PORT} and {LIVE_PORT}: put in those above."
    compose = f"docker compose -f {shown}/docker-compose.yml up"
    yield f"Where docker can fetch images: {compose} --no-deps grafana beside this, or without --no-deps after it."
    yield "Ctrl-C ends it."
