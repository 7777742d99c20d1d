"""What docker is told of a node's container, what is made of its answers, and what is refused before it is asked."""

from __future__ import annotations

import itertools
import os
import signal
import stat
from pathlib import Path

import pytest

from testbed.core.errors import MachineError, RunError
from testbed.core.record.telemetry import RENDEZVOUS_IN_NODE, SOCKET_IN_NODE, STORE_IN_NODE
from testbed.orchestrator.config.config import compose
from testbed.orchestrator.emulation.containers import docker_container
from testbed.orchestrator.emulation.containers.docker_container import DockerContainer, Holders, mount_option
from testbed.orchestrator.emulation.containers.sandbox import Sandbox
from testbed.orchestrator.machine import checks, cleanup, docker_client
from testbed.orchestrator.machine.docker_client import HOST_FILE, DockerError, Leftovers
from testbed.orchestrator.run import preflight

RUN = "20260101T000000Z-wan100m-ddp-none-abcdef01"
DOCKER = """#!/bin/sh
echo "$*" >> "$0.said"
case "$*" in
{cases}
*) echo "not foreseen: $*" >&2; exit 9 ;;
esac
"""


@pytest.fixture
def said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file in which a docker of the test's writes how it was called."""
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setenv("DOCKER_HOST", "unix:///test.sock")
    return tmp_path / "docker.said"


def answers(said: Path, *cases: str) -> None:
    program = said.with_name("docker")
    program.write_text(DOCKER.format(cases="\n".join(cases)))
    program.chmod(program.stat().st_mode | stat.S_IXUSR)


@pytest.fixture
def box(tmp_path: Path) -> DockerContainer:
    tmp_path.chmod(0o755)
    clone = tmp_path / "a clone, with a comma"
    (clone / "runs").mkdir(parents=True)
    sandbox = Sandbox(RUN, clone, clone / "runs", tmp_path, tmp_path, 10**9, limits={"a": 64_000_000})
    return DockerContainer(sandbox, tmp_path, "a", tmp_path / "log")


def following(arguments: list[str], option: str) -> list[str]:
    return [after for before, after in itertools.pairwise(arguments) if before == option]


def test_a_container_has_no_network_but_its_holders_and_no_rights(box: DockerContainer) -> None:
    arguments = box.arguments(["python", "-m", "x"], {"K": "v w"}, Path("/work"))
    assert following(arguments, "--network") == [f"container:longhaul-{RUN}-a.net"]
    assert following(arguments, "--cap-drop") == ["ALL"]
    assert following(arguments, "--security-opt") == ["no-new-privileges", f"seccomp={box._files / 'seccomp.json'}"]
    assert {"--read-only"} < set(arguments) and "--privileged" not in arguments
    assert following(arguments, "--user")[0].split(":")[0] != "0"


def test_its_limits_are_those_of_runc(box: DockerContainer) -> None:
    arguments = box.arguments(["python"], {}, Path("/work"))
    assert following(arguments, "--memory") == ["64000000"]
    assert following(arguments, "--pids-limit") == ["512"]
    assert following(arguments, "--cpu-shares") == ["256"]
    assert following(arguments, "--cgroup-parent") == [f"/longhaul-{RUN}-a"]


def test_it_carries_the_run_id_and_runs_what_it_is_told(box: DockerContainer) -> None:
    arguments = box.arguments(["python", "-m", "x"], {"K": "v w"}, Path("/work"))
    assert following(arguments, "--label") == [f"longhaul.run={RUN}"]
    assert following(arguments, "--env") == ["K=v w"] and following(arguments, "--workdir") == ["/work"]
    assert arguments[arguments.index("--entrypoint") + 1 :] == ["python", "longhaul-worker", "-m", "x"]


def test_it_sees_the_clone_read_only_and_no_runs(box: DockerContainer) -> None:
    mounts = following(box.arguments(["python"], {}, Path("/work")), "--mount")
    clone = box.sandbox.clone
    assert f'type=bind,"src={clone}","dst={clone}",readonly' in mounts
    assert any(f"dst={clone / 'runs'}" in mount and "tmpfs-size=4096" in mount for mount in mounts)
    assert f"type=bind,src={box.socket},dst={SOCKET_IN_NODE},readonly" in mounts
    assert f"type=bind,src={box.rendezvous},dst={RENDEZVOUS_IN_NODE},readonly" in mounts
    assert all(mount.endswith("readonly") for mount in mounts if mount.startswith("type=bind"))


def test_a_mount_is_one_line_of_csv() -> None:
    assert mount_option(type="bind", src='/a "b", c', dst="/d", readonly="") == (
        'type=bind,"src=/a ""b"", c",dst=/d,readonly'
    )


def test_a_holder_has_no_network_at_all() -> None:
    holders = Holders(RUN, ["a"], -1, keeps_model=False)
    arguments = holders.arguments("a")
    assert following(arguments, "--network") == ["none"] and following(arguments, "--hostname") == ["a"]
    store = f"type=volume,src=longhaul-{RUN}-a.store,dst={STORE_IN_NODE},volume-nocopy"
    assert following(arguments, "--mount") == [store]
    (options,) = (o for o in following(holders.volume_arguments("a"), "--opt") if o.startswith("o="))
    assert options.endswith("size=16777216,nr_inodes=10000")


def test_the_end_by_a_signal_is_told_from_a_status(said: Path, box: DockerContainer) -> None:
    for status, told in (("3", 3), ("137", -signal.SIGKILL), ("0", 0)):
        answers(said, "*create*) echo 0123 ;;", f"*start*) exit {status} ;;")
        box.start(["python"], {}, Path("/work"))
        box.wait(60)
        assert box.exit_code() == told


@pytest.mark.parametrize(("answer", "words"), [("true", "was killed for memory"), ("false", "SIGKILL")])
def test_docker_says_whether_it_was_memory(said: Path, box: DockerContainer, answer: str, words: str) -> None:
    answers(said, f"*inspect*OOMKilled*) echo {answer} ;;")
    assert words in box.ended(-signal.SIGKILL)


def test_a_container_that_cannot_be_made_says_why(said: Path, box: DockerContainer) -> None:
    answers(said, "*create*) echo 'no such image' >&2; exit 1 ;;")
    with pytest.raises(RunError, match="node a: docker could not make its container: no such image"):
        box.start(["python"], {}, Path("/work"))


@pytest.mark.parametrize(
    ("cases", "found"),
    [
        (["*version*) echo 'Cannot connect' >&2; exit 1 ;;"], "no daemon answers at unix:///test.sock"),
        (["*version*) echo 20 ;;", "*info*) echo systemd ;;"], "has the cgroup driver systemd"),
        (
            ["*version*) echo 20 ;;", "*info*) echo cgroupfs ;;", "*image*) echo 'No such image' >&2; exit 1 ;;"],
            "has no image longhaul-worker",
        ),
    ],
)
def test_what_docker_lacks_is_said_with_its_cure(said: Path, cases: list[str], found: str) -> None:
    answers(said, *cases)
    check = checks.docker(needed=True)
    assert not check.ok and found in check.found
    assert "dockerd --iptables=false --bridge=none" in check.cure or check.cure == "make docker-image"


def test_a_daemon_with_the_image_is_enough(said: Path) -> None:
    answers(said, "*version*) echo 20 ;;", "*info*) echo cgroupfs ;;", "*image*) echo sha256:1 ;;")
    assert checks.docker(needed=True).ok


def test_a_run_of_docker_without_it_is_refused_and_one_of_runc_does_not_ask(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    asked: list[bool] = []
    monkeypatch.setattr(docker_client, "lacking", lambda: asked.append(True) or ("no daemon answers", "start one"))
    with pytest.raises(MachineError) as caught:
        preflight.require(compose(["runtime=docker", "metrics_port=0"]), tmp_path)
    assert any(fault.startswith("docker: no daemon answers") for fault in caught.value.faults) and asked
    asked.clear()
    assert not any(check.name == "docker" for check in preflight.run_checks(metrics_port=None)) and not asked
    told = [check for check in preflight.run_checks(metrics_port=None, runtime=None) if check.name == "docker"]
    assert [check.needed for check in told] == [False]


def test_only_what_bears_the_run_id_is_removed(said: Path, tmp_path: Path) -> None:
    (tmp_path / HOST_FILE).write_text("unix:///other.sock")
    answers(said, f"*ps*longhaul.run={RUN}*) echo one ;;", f"*ls*longhaul.run={RUN}*) echo two ;;", "*rm*) ;;")
    Leftovers(RUN, tmp_path).remove()
    removals = [line for line in said.read_text().splitlines() if " rm " in line]
    assert removals == [
        "--host unix:///other.sock rm --force --volumes one",
        "--host unix:///other.sock volume rm --force two",
    ]


def test_a_daemon_that_is_gone_is_told_and_stays_known(
    said: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("testbed.core.record.run_directory.RUNTIME_ROOT", tmp_path / "runtime")
    runtime = cleanup.RunDir(Path(RUN)).runtime
    runtime.mkdir(parents=True)
    (runtime / HOST_FILE).write_text("unix:///gone.sock")
    answers(said, "*) echo 'Cannot connect' >&2; exit 1 ;;")
    assert any("the daemon at unix:///gone.sock does not answer" in line for line in cleanup.remove_leftovers(RUN))
    assert (runtime / HOST_FILE).exists()


def test_a_run_of_runc_asks_no_docker(said: Path, tmp_path: Path) -> None:
    answers(said)
    assert Leftovers(RUN, tmp_path).find() == []
    Leftovers(RUN, tmp_path).remove()
    assert not said.exists()


def test_a_failing_docker_says_what_it_said(said: Path) -> None:
    answers(said, "*ps*) echo 'permission denied' >&2; exit 1 ;;")
    with pytest.raises(DockerError, match="permission denied"):
        docker_container.docker("ps")
