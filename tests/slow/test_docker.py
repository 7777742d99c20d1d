"""The docker runtime by a dockerd of the test's own: a container is as closed as runc's, and a run completes."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import socket
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

import pytest

from testbed.orchestrator.emulation.containers.docker_container import DockerContainer, Holders, write_files
from testbed.orchestrator.emulation.containers.sandbox import Sandbox
from testbed.orchestrator.machine.cleanup import CGROUP_ROOT, remove_leftovers
from tests.emulation.endings import LONG, Endings
from tests.emulation.support import Longhaul, gone_within
from tests.slow.dockerd import served
from tests.slow.support import ROOT, run

pytestmark = [pytest.mark.docker, pytest.mark.timeout(900)]
IMAGE_LIMIT_S = 400.0
ASKED = ("topo=wan100m", "workers=2")
BACK, RANK_BACK = "virginia-0", 2
"""Of three workers."""
RUN_ID = "20260101T000000Z-test-docker-none-abcdef01"
MEMORY_BYTES = 256 << 20


@pytest.fixture(scope="module")
def daemon() -> Iterator[Path]:
    """A dockerd with the image of the nodes."""
    before = set(CGROUP_ROOT.glob("*/*"))
    with served() as place:
        built = run("bash scripts/docker-image.sh", IMAGE_LIMIT_S)
        assert built.returncode == 0, built.stderr
        yield place
    left = [path for path in set(CGROUP_ROOT.glob("*/*")) - before if path.name.startswith("longhaul-")]
    assert not left


@contextlib.contextmanager
def container(daemon: Path) -> Iterator[DockerContainer]:
    """Not started yet; its log is told of when it has ended."""
    with tempfile.TemporaryDirectory(dir=daemon) as name:
        files = Path(name)
        files.chmod(0o711)
        sandbox = Sandbox(RUN_ID, ROOT, ROOT / "runs", files, files, MEMORY_BYTES)
        box = DockerContainer(sandbox, files, "a", files / "log")
        box.rendezvous.touch()
        write_files(sandbox, files)
        host_proc = os.open("/proc", os.O_RDONLY | os.O_DIRECTORY)
        try:
            with socket.socket(socket.AF_UNIX) as node, Holders(RUN_ID, ["a"], host_proc, keeps_model=False):
                node.bind(str(box.socket))
                yield box
                box.delete()
        finally:
            os.close(host_proc)
        assert remove_leftovers(RUN_ID) == []


def test_a_container_lets_nothing_out(daemon: Path) -> None:
    key, other, socket_file = daemon / "key", daemon / "other", daemon / "host.sock"
    key.write_text("a secret")
    other.write_text("of another run")
    abstract = f"longhaul-test-{os.getpid()}"
    with socket.socket(socket.AF_UNIX) as host, socket.socket(socket.AF_UNIX) as hidden, container(daemon) as box:
        for listener, address in ((host, str(socket_file)), (hidden, f"\0{abstract}")):
            listener.bind(address)
            listener.listen()
        attempts = ROOT / "tests" / "emulation" / "attempts.py"
        wanted = sorted(set(re.findall(r'^    "([^"]+)": ', attempts.read_text(), re.MULTILINE)))
        words = [str(key), str(socket_file), abstract, str(os.getpid()), str(other), str(ROOT), *wanted]
        box.start([sys.executable, str(attempts), *words], {"PATH": "/usr/bin:/bin"}, ROOT)
        box.wait(120)
        said = box.log.read_text()
        assert box.exit_code() == 0, said
    reached = json.loads(next(line for line in said.splitlines() if line.startswith("{")))
    assert set(reached) == set(wanted) and not {name: what for name, what in reached.items() if what is not None}


def test_a_container_that_takes_too_much_memory_is_killed_for_it(daemon: Path) -> None:
    with container(daemon) as box:
        box.start([sys.executable, "-c", f"bytes(1) * {2 * MEMORY_BYTES}"], {"PATH": "/usr/bin:/bin"})
        box.wait(60)
        code = box.exit_code()
        assert code == -signal.SIGKILL, box.log.read_text()
        assert box.ended(code) == "was killed for memory (the limit is 268.4 MB, see memory_limit)"


def held_by_docker() -> str:
    return "".join(run(f"docker {kind}", 60).stdout for kind in ("ps --all --quiet", "volume ls --quiet"))


def test_a_run_is_the_one_of_runc_and_leaves_nothing(daemon: Path, machine_lock: None, tmp_path: Path) -> None:
    found = []
    for runtime in ("runc", "docker"):
        longhaul = Longhaul(tmp_path / runtime, *ASKED, "steps=4", f"runtime={runtime}")
        assert longhaul.wait() in (0, 5), longhaul.said  # a busy machine's run may not be believed
        gone_within(longhaul.run.run_id)
        assert held_by_docker() == ""
        assert json.loads(longhaul.run.provenance.read_text())[runtime]
        events = list(longhaul.run.read_events())
        assert any(event["event"] == "node" and event["memory_bytes"] for event in events)
        done = sorted((event["rank"], event["parameters_crc32"]) for event in events if event["event"] == "done")
        assert len(done) == 2
        found.append((done, sum(event["payload_bytes"] for event in events if event["event"] == "step")))
    assert found[0] == found[1]


def test_a_worker_that_is_killed_comes_back(daemon: Path, machine_lock: None, tmp_path: Path) -> None:
    events = tmp_path / "events.yaml"
    events.write_text(f"- at: 2 s\n  crash: {BACK}\n- at: 4 s\n  join: {BACK}\n")
    longhaul = Longhaul(
        *(tmp_path / "runs", ASKED[0], "workers=3", "runtime=docker", "strategy=parameter_server"),
        *("strategy.local_steps=1", "steps=60", f"events={events}"),
    )
    assert longhaul.wait() in (0, 5), longhaul.said
    gone_within(longhaul.run.run_id)
    assert longhaul.summary()["status"] == "completed"
    told = [event for event in longhaul.run.read_events() if event["event"] in ("left", "start")]
    assert [event["rank"] for event in told if event["event"] == "left"] == [RANK_BACK]
    assert sum(event["event"] == "start" for event in told) == 3 + 1
    assert held_by_docker() == ""


class TestEndings(Endings):
    """runc's, but for a full disk, which a daemon outside the test's namespaces does not see, and the fork server."""

    words: ClassVar[tuple[str, ...]] = (*LONG, "runtime=docker")

    @pytest.fixture(autouse=True)
    def nothing_held(self, daemon: Path) -> Iterator[None]:
        assert held_by_docker() == ""
        yield
        assert held_by_docker() == ""

    def test_docker_holds_what_is_removed_later(self, running: Longhaul) -> None:
        """Else the others would prove nothing."""
        workers = 4
        assert len(held_by_docker().split()) == 3 * workers, "each node's two containers and its volume"
