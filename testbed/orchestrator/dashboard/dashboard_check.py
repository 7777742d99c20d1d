"""`longhaul dashboard --check`: every query of every dashboard asked about all runs."""

from __future__ import annotations

import functools
import os
import subprocess
import sys
from pathlib import Path

from testbed.core.errors import EXIT_COMPLETED, InputError, MachineError
from testbed.core.processes import end_with
from testbed.orchestrator.dashboard.dashboard_command import BUILD, DASHBOARDS, dashboard
from testbed.orchestrator.dashboard.prometheus_server import Server
from testbed.orchestrator.machine.checks import binary
from testbed.orchestrator.machine.clone import environment
from testbed.orchestrator.machine.ownership import give_to_caller


def check_dashboards(runs_root: Path, *, build: Path = BUILD) -> int:
    """Ask every query of every dashboard about all runs, with a server of its own, on any free port.

    Returns:
        The exit status, which is that of a failed run if a dashboard has a fault.

    Raises:
        InputError: there are no runs, or their archive is being served.
        MachineError: Prometheus is not installed.
        RunError: it did not start.
    """
    there = binary("prometheus", "it answers what the dashboards ask", "prometheus")
    if not there.ok:
        raise MachineError(there.line)
    archive = build / "archive"
    config = DASHBOARDS / "prometheus" / "archive.yml"
    server = Server("archive", config, archive / "data", 0, archive / "prometheus.log", keep="100y")
    if fault := server.fault(""):
        raise InputError(fault)
    status = dashboard(runs_root, serve=False, build=build)
    if status != EXIT_COMPLETED:
        return status
    try:
        server.start()
        server.wait_until_ready()
        return _analyse(server)
    finally:
        server.stop()
        give_to_caller(build)


def _analyse(server: Server) -> int:
    """Check by the analysis, in a process of its own that ends with this one, and return its exit status."""
    sys.stdout.flush()
    return subprocess.run(
        [sys.executable, "-m", "testbed.analysis", "dashboard-check", "--prometheus", server.address],
        env=environment(),
        start_new_session=True,
        preexec_fn=functools.partial(end_with, os.getpid()),
        check=False,
    ).returncode
