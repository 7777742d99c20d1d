"""Servers of what a browser shows: Longhaul's own pages, and Grafana where it is installed."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from testbed.orchestrator.dashboard.server_process import LOOPBACK, ServerProcess
from testbed.orchestrator.machine.clone import CLONE, environment

DASHBOARDS = CLONE / "dashboards"
GRAFANA_PROGRAM = "grafana-server"
_COMPOSE = DASHBOARDS / "docker-compose.yml"
GRAFANA_IMAGE = "grafana/grafana:12.4.3"
_GRAFANA_SETTINGS = {
    "GF_SERVER_HTTP_ADDR": LOOPBACK,
    "GF_AUTH_ANONYMOUS_ENABLED": "true",
    "GF_AUTH_ANONYMOUS_ORG_ROLE": "Viewer",
    "GF_DASHBOARDS_MIN_REFRESH_INTERVAL": "1s",
    # it fetches nothing and calls nobody
    "GF_ANALYTICS_REPORTING_ENABLED": "false",
    "GF_ANALYTICS_CHECK_FOR_UPDATES": "false",
    "GF_ANALYTICS_CHECK_FOR_PLUGIN_UPDATES": "false",
    "GF_NEWS_NEWS_FEED_ENABLED": "false",
    "GF_SNAPSHOTS_EXTERNAL_ENABLED": "false",
    "GF_SECURITY_DISABLE_GRAVATAR": "true",
    "GF_PLUGINS_PREINSTALL_DISABLED": "true",
}
"""As in docker-compose.yml, which a test compares."""


class PagesServer(ServerProcess):
    """Longhaul's live pages over a folder of runs, by the analysis in a process of its own."""

    def __init__(self, runs_root: Path, port: int, log: Path) -> None:
        super().__init__("pages", port, log)
        self.runs_root = runs_root

    def command(self) -> list[str]:
        return [sys.executable, "-m", "testbed.analysis", "live", str(self.runs_root), "--port", str(self.port)]

    def environment(self) -> dict[str, str]:
        return environment()


class GrafanaServer(ServerProcess):
    """An installed Grafana with Longhaul's dashboards and data sources; its data stay in `data`."""

    def __init__(self, program: str, data: Path, port: int) -> None:
        super().__init__("grafana", port, data / "grafana.log", "/api/health")
        self.program = program
        self.data = data

    def command(self) -> list[str]:
        home = next((path for path in _HOMES if path.is_dir()), None)
        return [self.program, *(["--homepath", str(home)] if home else [])]

    def environment(self) -> dict[str, str]:
        self._provision()
        own = {
            "GF_SERVER_HTTP_PORT": str(self.port),
            "GF_PATHS_DATA": str(self.data),
            "GF_PATHS_LOGS": str(self.data),
            "GF_PATHS_PROVISIONING": str(self.data / "provisioning"),
            "GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH": str(DASHBOARDS / "grafana" / "compare.json"),
        }
        return {**os.environ, **_GRAFANA_SETTINGS, **own}

    def _provision(self) -> None:
        """Write the provisioning with this clone's folder of dashboards, which the file names as it is in the image."""
        for path in (DASHBOARDS / "provisioning").rglob("*.yml"):
            copy = self.data / "provisioning" / path.relative_to(DASHBOARDS / "provisioning")
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_text(path.read_text().replace("/var/lib/grafana/dashboards", str(DASHBOARDS / "grafana")))


class GrafanaContainer(ServerProcess):
    """Grafana by docker compose, with an image that docker has already; it serves port 3000."""

    def __init__(self, docker: str, log: Path) -> None:
        super().__init__("grafana", GRAFANA_PORT, log, "/api/health")
        self.docker = docker

    def command(self) -> list[str]:
        return [self.docker, "compose", "-f", str(_COMPOSE), "up", "--no-deps", "--pull", "never", "grafana"]


GRAFANA_PORT = 3000
_HOMES = (Path("/usr/share/grafana"),)


def grafana(build: Path) -> ServerProcess | None:
    """Return the Grafana of this machine: an installed program, or docker with its image; None if there is none."""
    if (program := shutil.which(GRAFANA_PROGRAM)) is not None:
        return GrafanaServer(program, build / "grafana", GRAFANA_PORT)
    docker = shutil.which("docker")
    if docker is None or not _has_image(docker):
        return None
    return GrafanaContainer(docker, build / "grafana" / "grafana.log")


def _has_image(docker: str) -> bool:
    try:
        asked = [docker, "image", "inspect", GRAFANA_IMAGE]
        return subprocess.run(asked, capture_output=True, timeout=10, check=False).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False
