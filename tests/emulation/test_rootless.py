"""Without root: a user with no rights at all makes a run, which says what it lacks, and leaves nothing."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from testbed.core.record.run_directory import OWNER
from testbed.orchestrator.machine.clone import CLONE, environment
from testbed.orchestrator.machine.rights import Rights
from tests.emulation.rootless import UID, User, user
from tests.emulation.support import Longhaul, host_state, wait_until
from tests.emulation.test_between_nodes import LEFT_IN_A_NODE

pytestmark = pytest.mark.rootless
RUN_ID = "20000101T000000Z-rootless-test-none-00000000"
SECRET = "a secret of the user"


@pytest.fixture
def somebody() -> Iterator[User]:
    with user() as found:
        yield found


def nothing_is_left(of: User, before: dict[str, list[str]]) -> None:
    wait_until(lambda: not of.processes(), 30.0, "the user's processes are gone")
    assert host_state() == before
    assert {path.name for path in of.runtime.iterdir()} <= {".cgroup", "runc", "machine.lock", "shared.lock"}
    assert not list((of.runtime / "runc").iterdir())


@pytest.mark.timeout(900)
def test_a_user_without_rights_makes_a_run(machine_lock: None, somebody: User) -> None:
    before = host_state()
    asked = ("--rootless", "topo=wan100m", "topo.rate='20 Mbit/s'", "workload=sensors", "workers=2", "steps=4")
    longhaul = Longhaul(somebody.home / "runs", *asked, wrapper=somebody.wrapper(), is_patient=True)
    assert longhaul.wait() in (0, 5), longhaul.said
    nothing_is_left(somebody, before)
    summary = longhaul.summary()
    assert (summary["status"], summary["steps"]) == ("completed", 4)
    for link in summary["links"]:
        if link["wan"]:
            assert link["rate_bit_s"]["measured"] == pytest.approx(20e6, rel=0.05)
            assert link["rtt_s"]["measured"] == pytest.approx(0.067, rel=0.1)
    assert summary["bytes"]["payload"] > 0
    facts = json.loads(longhaul.run.provenance.read_text())
    assert facts["cores_kept_awake"] is False and longhaul.said.count("idle cores may sleep") == 1
    lost = facts["rights_lost"]
    assert len(lost) >= 4 and all(longhaul.said.count(f"rootless, so without {line}") == 1 for line in lost)
    assert any("nothing limits them" in line for line in summary["unknowns"])
    made = [longhaul.run.path, *longhaul.run.path.rglob("*")]
    assert {path.lstat().st_uid for path in made} == {UID} and longhaul.run.report in made


@pytest.mark.timeout(900)
def test_a_run_of_a_user_that_is_killed_leaves_nothing(machine_lock: None, somebody: User) -> None:
    before = host_state()
    asked = ("--rootless", "topo=lan", "workers=2", "steps=4000")
    longhaul = Longhaul(somebody.home / "runs", *asked, wrapper=somebody.wrapper(), is_patient=True)
    longhaul.wait_for_step(0)
    os.kill(longhaul.process.pid, signal.SIGKILL)
    longhaul.process.wait()
    wait_until(lambda: not somebody.processes(), 30.0, "the user's processes are gone")
    command = [*somebody.wrapper(), sys.executable, "-m", "testbed", "list", "--json", "--runs", str(longhaul.runs)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, env=environment(), check=False)
    assert done.returncode == 0, done.stderr
    assert [run["status"] for run in json.loads(done.stdout)] == ["killed"]
    nothing_is_left(somebody, before)


def said_inside(of: User, script: str, *arguments: object) -> Any:
    """Run a script of this folder as a user, in the namespaces of a rootless run; return the JSON it prints last."""
    command = [
        *(*of.wrapper(**{OWNER: str(UID)}), *Rights(rootless=True).unshare()),
        *(sys.executable, str(Path(__file__).parent / script), *map(str, arguments)),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, env=environment(), check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.strip().splitlines()[-1])


@pytest.mark.timeout(600)
def test_nodes_that_own_their_users_files_pass_nothing_by_them(machine_lock: None, somebody: User) -> None:
    work = somebody.home / "work"
    work.mkdir()
    os.chown(work, UID, UID)
    said = said_inside(somebody, "inside_between_nodes.py", work, RUN_ID)
    assert set(said["leave"]["left"]) >= LEFT_IN_A_NODE, said["leave"]
    assert {way: what for way, what in said["take"].items() if what is not None} == {}


@pytest.fixture(scope="module")
def said(machine_lock: None) -> Iterator[dict[str, Any]]:
    """As of test_isolation.py, of the containers of such a run; the secret is the user's own."""
    with user() as somebody:
        key, work = somebody.home / "key", somebody.home / "work"
        key.write_text(SECRET)
        work.mkdir()
        for path in (key, work):
            os.chown(path, UID, UID)
        victim = subprocess.Popen([*somebody.wrapper(), "sleep", "600"])
        arguments = [work, RUN_ID, key, "/nowhere", "nowhere", victim.pid, key, CLONE]
        try:
            found = said_inside(somebody, "inside_isolation.py", *arguments)
            assert victim.poll() is None, "the container ended a process of its user"
            yield found
        finally:
            victim.kill()
            victim.wait()


@pytest.mark.timeout(600)
@pytest.mark.parametrize("node", ["tries", "forked-tries"])
def test_a_worker_reaches_nothing_of_its_user_but_memory(said: dict[str, Any], node: str) -> None:
    reached = said["said"][node][0]
    assert len(reached) > 30
    # user 0 of the namespace is the only one there, and which it is already; nothing limits its memory
    assert {name for name, what in reached.items() if what is not None} == {"other user", "memory past its limit"}


@pytest.mark.parametrize("node", ["tells", "forked-tells"])
def test_a_worker_has_no_rights_in_its_user_namespace(said: dict[str, Any], node: str) -> None:
    status = said["said"][node][-1]["status"]
    assert said["said"][node][-1]["interpreter is read-only"]
    assert (status["Seccomp"], status["NoNewPrivs"]) == ("2", "1")
    assert {status[name] for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")} == {"0" * 16}
