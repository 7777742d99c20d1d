"""`longhaul dashboard`: every fault at once and before anything is made; served until it is stopped; nothing stays."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from testbed.core.errors import InputError, MachineError, RunError
from testbed.orchestrator.cli.main import main
from testbed.orchestrator.dashboard import dashboard_command, page_servers
from testbed.orchestrator.dashboard.dashboard_command import dashboard
from testbed.orchestrator.dashboard.prometheus_server import Server
from tests.unit.analysis.archived import ask, finished_run, require_prometheus, value
from tests.waiting import HANG_S, wait_until

pytestmark = [pytest.mark.timeout(300), pytest.mark.tier("all")]


@pytest.fixture(autouse=True)
def _prometheus() -> None:
    require_prometheus()


@pytest.fixture
def build(tmp_path: Path) -> Path:
    return tmp_path / "build"


@contextmanager
def serving(runs: Path, build: Path, **options: object) -> Iterator[tuple[subprocess.Popen[str], list[Server]]]:
    """The command in a process of its own, and its servers as it tells their addresses."""
    asked = {"pages_port": 0, "port": 0, "live_port": 0, **options}
    call = "from pathlib import Path; from testbed.orchestrator.dashboard.dashboard_command import dashboard as d;"
    call += f"raise SystemExit(d(Path({str(runs)!r}), build=Path({str(build)!r}), **{asked!r}))"
    log = (build.parent / "said").open("w+")
    process = subprocess.Popen([sys.executable, "-c", call], stdout=log, stderr=log, text=True, start_new_session=True)
    said = Path(log.name)
    try:
        wait_until(lambda: "Ctrl-C ends it" in said.read_text() or process.poll() is not None, "the servers' start")
        ports = re.findall(r"http://127\.0\.0\.1:(\d+)", said.read_text())
        assert process.poll() is None, said.read_text()
        # the first address is that of the pages
        yield process, [Server("told", build, build, int(port), build) for port in ports[1:]]
    finally:
        process.kill()
        process.wait()
        log.close()


def is_open(server: Server) -> bool:
    with socket.socket() as asking:
        return asking.connect_ex(("127.0.0.1", server.port)) == 0


def children(pid: int) -> set[int]:
    return {int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()}


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_it_serves_all_runs_until_it_is_stopped(runs: Path, build: Path, number: signal.Signals) -> None:
    for index in range(3):
        finished_run(runs, index)
    with serving(runs, build) as (process, servers):
        (server,) = servers
        assert value(server, "count(longhaul_run_info)", 2.0) == 3
        process.send_signal(number)
        assert process.wait(HANG_S) == 0
        assert not is_open(server)
    said = (build.parent / "said").read_text()
    assert "archive: 3 runs (3 new)" in said and "dashboards/provisioning" in said and "docker compose" in said


def test_a_kill_takes_the_servers_with_it(runs: Path, build: Path) -> None:
    finished_run(runs)
    with serving(runs, build, live=True) as (process, servers):
        assert len(servers) == 2 and all(is_open(server) for server in servers)
        pids = children(process.pid)
        assert len(pids) == 3
        process.kill()
        process.wait()
        wait_until(lambda: not any(is_open(server) for server in servers), "the servers' ports to be closed")
        wait_until(lambda: not any(Path(f"/proc/{pid}/exe").exists() for pid in pids), "the servers' end")
    with serving(runs, build) as (_, servers):
        assert value(servers[0], "count(longhaul_run_info)", 2.0) == 1


def test_live_has_data_of_its_own(runs: Path, build: Path) -> None:
    """Before the first run too: there is a first time."""
    with serving(runs, build, live=True) as (_, servers):
        archive, live = servers
        wait_until(lambda: bool(ask(live, 'up{job!=""}')), "a first scrape")
        assert ask(archive, 'up{job!=""}') == []
    assert {path.name for path in build.iterdir()} == {"archive", "live", "pages.log"}


def test_a_server_that_ends_by_itself_ends_the_command(runs: Path, build: Path) -> None:
    finished_run(runs)
    with serving(runs, build) as (process, _):
        (pid,) = (pid for pid in children(process.pid) if Path(f"/proc/{pid}/comm").read_text() == "prometheus\n")
        os.kill(pid, signal.SIGKILL)
        assert process.wait(HANG_S) != 0
    assert "archive: ended with -9" in (build.parent / "said").read_text()


def test_a_configuration_that_cannot_be_read_is_told(
    runs: Path, build: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    finished_run(runs)
    monkeypatch.setattr(dashboard_command, "DASHBOARDS", tmp_path / "nowhere")
    with pytest.raises(RunError, match=r"archive: ended with \d+: .*archive\.yml"):
        dashboard(runs, pages_port=0, port=0, build=build)


def test_every_fault_at_once_and_nothing_made(runs: Path, build: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    finished_run(runs)
    monkeypatch.setenv("PATH", "/nowhere")
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        with pytest.raises(InputError) as caught:
            dashboard(runs, live=True, pages_port=port, build=build)
    taken, promtool, prometheus = caught.value.faults
    assert taken == f"--pages-port {port}: in use by another process; choose another, or 0 for any free one"
    assert promtool.startswith("promtool: not found") and promtool.endswith("apt-get install prometheus")
    assert prometheus.startswith("prometheus: not found")
    assert not build.exists()


def test_without_prometheus_the_status_is_3(runs: Path, build: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(MachineError) as caught:
        dashboard(runs, serve=False, build=build)
    assert len(caught.value.faults) == 1 and not build.exists()


def test_one_port_for_both_is_refused(runs: Path, build: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    with pytest.raises(InputError, match="must be different ports"):
        dashboard(runs, live=True, port=port, live_port=port, build=build)


def test_an_archive_that_is_served_is_not_served_twice(runs: Path, build: Path) -> None:
    finished_run(runs)
    with serving(runs, build):
        with pytest.raises(InputError, match=r"another Prometheus serves .* already; end that one first"):
            dashboard(runs, pages_port=0, port=0, build=build)
        finished_run(runs, 1)
        assert dashboard(runs, serve=False, build=build) == 0, "new runs are added beside it"


def test_an_archive_of_no_runs_is_refused(runs: Path, build: Path) -> None:
    with pytest.raises(InputError, match=r"no finished runs in .*make experiment"):
        dashboard(runs, serve=False, build=build)


def test_pages_are_served_without_prometheus(runs: Path, build: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with serving(runs, build) as (_, servers):
        assert servers == []
    said = (build.parent / "said").read_text()
    assert (
        "pages:     http://127.0.0.1:" in said and "no Prometheus, so nothing for Grafana: promtool: not found" in said
    )


def test_an_installed_grafana_is_started_on_loopback(
    runs: Path, build: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The program is a stand-in: it answers, and notes what it was given."""
    finished_run(runs)
    program = tmp_path / "bin" / "grafana-server"
    program.parent.mkdir()
    program.write_text(f"#!{sys.executable}\n{STAND_IN}")
    program.chmod(0o755)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    server = page_servers.GrafanaServer(str(program), build / "grafana", port)
    found = page_servers.grafana(build)
    assert isinstance(found, page_servers.GrafanaServer) and found.program == str(program)
    try:
        server.start()
        server.wait_until_ready()
    finally:
        server.stop()
    given = json.loads((build / "grafana" / "given.json").read_text())
    assert given["GF_SERVER_HTTP_ADDR"] == "127.0.0.1" and given["GF_SERVER_HTTP_PORT"] == str(port)
    compose = (page_servers.DASHBOARDS / "docker-compose.yml").read_text()
    for name in page_servers._GRAFANA_SETTINGS:
        assert re.search(rf'{name}: "?{re.escape(given[name])}"?(\s|$)', compose), name
    provider = (build / "grafana" / "provisioning" / "dashboards" / "longhaul.yml").read_text()
    assert str(page_servers.DASHBOARDS / "grafana") in provider


STAND_IN = """
import http.server, json, os
with open(os.path.join(os.environ["GF_PATHS_DATA"], "given.json"), "w") as file:
    json.dump({key: value for key, value in os.environ.items() if key.startswith("GF_")}, file)
class Answer(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
address = os.environ["GF_SERVER_HTTP_ADDR"], int(os.environ["GF_SERVER_HTTP_PORT"])
http.server.HTTPServer(address, Answer).serve_forever()
"""


def test_the_analysis_s_fault_is_the_status(runs: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    finished_run(runs)
    (tmp_path / "file").write_text("")
    assert dashboard(runs, serve=False, build=tmp_path / "file") == 4
    assert "cannot be written" in capfd.readouterr().err


def test_the_command_line_knows_it(
    runs: Path, build: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = {}
    monkeypatch.setattr(dashboard_command, "dashboard", lambda root, **options: asked.update(root=root, **options) or 0)
    assert main(["dashboard", "--runs", str(runs), "--live", "--port", "0"]) == 0
    ports = {"pages_port": dashboard_command.PAGES_PORT, "port": 0, "live_port": dashboard_command.LIVE_PORT}
    assert asked == {"root": runs, "live": True, "serve": True, **ports}
    assert main(["dashboard", "--no-serve"]) == 0
    assert (asked["serve"], asked["port"]) == (False, dashboard_command.ARCHIVE_PORT)
