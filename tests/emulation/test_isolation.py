"""A worker reaches nothing of the host: each way out is tried from inside a container."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from testbed.orchestrator.clone import CLONE, RUNS_ROOT
from tests.emulation.support import gone_within, run_inside

RUN_ID = "20000101T000000Z-isolation-test-none-00000000"
SECRET = "a secret of the host"


@pytest.fixture(scope="module")
def reached(tmp_path_factory: pytest.TempPathFactory, machine_lock: None) -> Iterator[dict[str, Any]]:
    """What the container reached of things that are really there."""
    key = Path.home() / f".longhaul-test-key-{os.getpid()}"
    other = RUNS_ROOT / "20000101T000000Z-other-run-none-00000000"
    path, abstract = f"/run/longhaul-test-{os.getpid()}.sock", f"longhaul-test-{os.getpid()}"
    victim = subprocess.Popen(["sleep", "600"])
    with socket.socket(socket.AF_UNIX) as by_path, socket.socket(socket.AF_UNIX) as by_name:
        try:
            key.write_text(SECRET)
            other.mkdir(parents=True)
            (other / "summary.json").write_text(SECRET)
            by_path.bind(path)
            os.chmod(path, 0o777)
            by_name.bind("\0" + abstract)
            for server in (by_path, by_name):
                server.listen()
            work = tmp_path_factory.mktemp("isolation")
            arguments = [key, path, abstract, victim.pid, other / "summary.json", CLONE]
            found = run_inside("inside_isolation.py", str(work), RUN_ID, *map(str, arguments))
            assert victim.poll() is None, "the container ended a process of the host"
            yield found
        finally:
            victim.kill()
            victim.wait()
            key.unlink(missing_ok=True)
            Path(path).unlink(missing_ok=True)
            (other / "summary.json").unlink(missing_ok=True)
            other.rmdir()
            gone_within(RUN_ID, 5)


def test_every_way_out_is_shut(reached: dict[str, Any]) -> None:
    assert len(reached) > 30
    assert {name: what for name, what in reached.items() if what is not None} == {}


def test_the_same_attempts_reach_things_outside(tmp_path: Path) -> None:
    """The list is not vacuous: run on the host as root, the harmless ones get through."""
    key = tmp_path / "key"
    key.write_text(SECRET)
    arguments = [key, "/nowhere", "nowhere", os.getpid(), key, CLONE]
    harmless = ("host key", "host passwords", "other run's files", "raw packets", "host processes")
    command = [sys.executable, str(Path(__file__).parent / "attempts.py"), *map(str, arguments), *harmless]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    reached = json.loads(done.stdout.strip().splitlines()[-1])
    assert set(reached) == set(harmless)
    assert [name for name, what in reached.items() if what is None] == []
