"""A worker reaches nothing of the host, started by runc or forked: each way out is tried from inside a container."""

from __future__ import annotations

import errno
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from testbed.core import seccomp
from testbed.core.errors import EXIT_INPUT
from testbed.orchestrator.machine.clone import CLONE, RUNS_ROOT
from testbed.orchestrator.run.workers.fork_server import interpreter_environment
from tests.emulation.support import gone_within, run_inside

RUN_ID = "20000101T000000Z-isolation-test-none-00000000"
SECRET = "a secret of the host"


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory, machine_lock: None) -> Iterator[dict[str, Any]]:
    """What the containers said of themselves, and what they reached of things that are really there."""
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
            gone_within(RUN_ID)


@pytest.mark.parametrize("node", ["tries", "forked-tries"])
def test_every_way_out_is_shut(said: dict[str, Any], node: str) -> None:
    reached = said["said"][node][0]
    assert len(reached) > 30
    assert {name: what for name, what in reached.items() if what is not None} == {}


@pytest.mark.parametrize("node", ["tells", "forked-tells"])
def test_a_process_in_a_node_has_no_rights(said: dict[str, Any], node: str) -> None:
    status = said["said"][node][-1]["status"]
    assert (status["Seccomp"], status["NoNewPrivs"], status["Groups"]) == ("2", "1", "")
    assert {status[name] for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")} == {"0" * 16}
    assert 0 not in map(int, status["Uid"].split() + status["Gid"].split())


@pytest.mark.parametrize("node", ["tells", "forked-tells"])
def test_a_process_in_a_node_cannot_mark_its_interpreter(said: dict[str, Any], node: str) -> None:
    """Whoever owns that file sets its times and mode, also through /proc/self/exe, where its mount lets them."""
    assert said["said"][node][-1]["interpreter is read-only"]


def test_a_forked_worker_is_what_runc_would_start(said: dict[str, Any]) -> None:
    by_runc, forked = said["said"]["tells"][-1], said["said"]["forked-tells"][-1]
    for same in ("status", "open files", "file size", "directory", "umask", "refused"):
        assert forked[same] == by_runc[same], same
    refused = forked["refused"]
    sockets = {name for name in refused if name.startswith("socket")}
    assert {refused[name] for name in refused.keys() - sockets - {"clone3"}} == {errno.EPERM}
    assert refused["clone3"] == errno.ENOSYS
    allowed = {name for name in sockets if refused[name] != errno.EPERM}
    assert allowed == {f"socket {family}" for family in seccomp.SOCKET_FAMILIES.values()}


def test_a_forked_worker_lives_in_its_container_alone(said: dict[str, Any]) -> None:
    forked, other = said["said"]["forked-tells"][-1], said["said"]["forked-tries"][-1]
    own = {kind: name for kind, name in forked["namespaces"].items() if kind != "user"}
    assert forked["namespaces"] == forked["first's namespaces"]
    assert not set(own.values()) & set(other["namespaces"].values())
    assert not {os.readlink(f"/proc/self/ns/{kind}") for kind in own} & set(own.values())
    assert forked["cgroups"] == forked["first's cgroups"]
    assert any(f"longhaul-{RUN_ID}-forked-tells" in line for line in forked["cgroups"])


def test_a_forked_worker_holds_nothing_of_the_host(said: dict[str, Any]) -> None:
    forked = said["said"]["forked-tells"][-1]
    names = {line.partition("=")[0] for line in forked["environ"]}
    given = {"LD_LIBRARY_PATH", "PYTORCH_NVML_BASED_CUDA_CHECK"}  # of the driver
    assert names == set(interpreter_environment(RUN_ID)) | given, "as the fork server was started"
    assert set(forked["environment"]) == names | {"LONGHAUL_NODE"}
    by_runc = {what.partition(":")[0] for what in said["said"]["tells"][-1]["files"].values()}
    assert {"0", "1", "2"} <= forked["files"].keys() and forked["files"]["0"] == "/dev/null"
    beyond = [what for name, what in forked["files"].items() if int(name) > 2]
    assert len(beyond) <= 2, f"its telemetry socket and what lists the files: {beyond} (runc's: {by_runc})"
    assert all(what.startswith(("socket:", "/proc/")) for what in beyond)


@pytest.mark.parametrize(("node", "device"), [("tells", "nvidia1"), ("forked-tells", "nvidia1")])
def test_a_node_opens_the_devices_it_was_given_and_loads_their_library(
    said: dict[str, Any], node: str, device: str
) -> None:
    """Beside ways out that are shut all the same. A device of the kernel's that this one lacks cannot be opened."""
    told = said["said"][node][-1]
    assert set(told["devices"]) == {device, "nvidiactl", "nvidia-uvm"}, "and none of another's"
    assert set(told["devices"].values()) <= {"opened", "ENXIO", "ENODEV", "ENOENT"}, "EPERM is a cgroup's"
    (loaded,) = told["library"]["loaded"]
    assert Path(loaded).name in ("libcuda.so.1", "libcuda.so.1.2.3") and not told["library"]["writable"]


def test_forked_workers_draw_other_numbers_each_as_interpreters_of_their_own_would(said: dict[str, Any]) -> None:
    one, other = said["said"]["forked-tells"][-1], said["said"]["forked-tries"][-1]
    assert len(one["drawn"]) == 3  # random, numpy, torch
    assert all(mine != theirs for mine, theirs in zip(one["drawn"], other["drawn"], strict=True))


def test_memory_past_its_limit_ends_that_worker_alone(said: dict[str, Any]) -> None:
    assert said["codes"] == {
        "tries": 0,
        "tells": 0,
        "forked-tries": -signal.SIGKILL,
        "forked-tells": EXIT_INPUT,
        "forked-stays": None,
    }


def test_workers_end_with_the_process_they_were_forked_from(said: dict[str, Any]) -> None:
    ended = said["fork-server"]
    assert (ended["lived"], ended["gone"]) == (True, True)
    assert ended["said"].startswith("the process that workers are forked from was ended by SIGKILL")


def test_the_same_attempts_reach_things_outside(tmp_path: Path) -> None:
    """The list is not vacuous: run on the host as root, the harmless ones get through."""
    key = tmp_path / "key"
    key.write_text(SECRET)
    arguments = [key, "/nowhere", "nowhere", os.getpid(), key, CLONE]
    harmless = (
        "host key",
        "host passwords",
        "other run's files",
        "raw packets",
        "host processes",
        "program that runs as its owner",
    )
    command = [sys.executable, str(Path(__file__).parent / "attempts.py"), *map(str, arguments), *harmless]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    reached = json.loads(done.stdout.strip().splitlines()[-1])
    assert set(reached) == set(harmless)
    assert [name for name, what in reached.items() if what is None] == []
