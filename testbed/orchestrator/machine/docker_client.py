"""The docker command for the run, its supervisor and its watcher. Standard library only: the watcher starts fast.

The daemon is the user's: nothing here starts or ends it. It is asked by DOCKER_HOST, or at its usual socket.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

RUN_LABEL = "longhaul.run"
IMAGE = "longhaul-worker"
CGROUP_DRIVER = "cgroupfs"
"""Under systemd's driver a container's cgroup takes no parent that bears the run id."""
USUAL_HOST = "unix:///var/run/docker.sock"
HOST_FILE = "docker-host"
"""In the runtime directory of a run: where its daemon listens. Its presence says that docker is to be asked for what
the run left."""
START_COMMAND = f"dockerd --iptables=false --bridge=none --exec-opt native.cgroupdriver={CGROUP_DRIVER}"
TIME_LIMIT_S = 60.0


class DockerError(Exception):
    """The daemon refused or was not there; the text is what docker said."""


def daemon_host() -> str:
    return os.environ.get("DOCKER_HOST") or USUAL_HOST


def docker(*arguments: str, host: str | None = None, time_limit_s: float = TIME_LIMIT_S) -> str:
    """What the command printed, without the last line's end.

    Raises:
        DockerError: it failed, did not end in time, or is not there.
    """
    command = [*command_line(host), *arguments]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=time_limit_s, check=False)
    except FileNotFoundError:
        raise DockerError("there is no docker command on PATH") from None
    except subprocess.TimeoutExpired:
        raise DockerError(f"docker {arguments[0]} did not end within {time_limit_s:g} s") from None
    if done.returncode != 0:
        raise DockerError((done.stderr or done.stdout).strip() or f"docker {arguments[0]} ended with {done.returncode}")
    return done.stdout.strip()


def command_line(host: str | None = None) -> list[str]:
    return ["docker", "--host", host or daemon_host()]


def lacking() -> tuple[str, str] | None:
    """What keeps a run from `runtime=docker`, and what to do; None where all is there."""
    start = f"start one by hand, as root: {START_COMMAND}"
    if shutil.which("docker") is None:
        return "no docker command on PATH", f"apt-get install docker.io, then {start}"
    try:
        docker("version", "--format", "{{.Server.Version}}", time_limit_s=10.0)  # `info` may end well without a daemon
        driver = docker("info", "--format", "{{.CgroupDriver}}", time_limit_s=10.0)
    except DockerError as error:
        return f"no daemon answers at {daemon_host()} ({_one_line(error)})", start
    if driver != CGROUP_DRIVER:
        found = f"the daemon at {daemon_host()} has the cgroup driver {driver}"
        return f"{found}, under which no cgroup can be named by the run", start
    try:
        docker("image", "inspect", "--format", "{{.Id}}", IMAGE, time_limit_s=10.0)
    except DockerError as error:
        return f"the daemon at {daemon_host()} has no image {IMAGE} ({_one_line(error)})", "make docker-image"
    return None


def _one_line(error: DockerError) -> str:
    return " ".join(str(error).split())[:200]


def remember_host(runtime: Path) -> None:
    """For whoever cleans up after the run. To be called before the first container is made."""
    (runtime / HOST_FILE).write_text(daemon_host())


class Leftovers:
    """Containers and volumes of one run that a daemon still has.

    Args:
        runtime: the run's runtime directory, which names the daemon; a run of runc has none and leaves none.
    """

    def __init__(self, run_id: str, runtime: Path) -> None:
        self._filter = f"label={RUN_LABEL}={run_id}"
        try:
            self.host: str | None = (runtime / HOST_FILE).read_text()
        except OSError:
            self.host = None

    def find(self) -> list[str]:
        """One line each; one that says so where the daemon does not answer."""
        if self.host is None:
            return []
        try:
            return [f"docker {kind} {name}" for kind, name in self._found()]
        except DockerError as error:
            return [f"what docker holds of it: the daemon at {self.host} does not answer ({_one_line(error)})"]

    def remove(self) -> None:
        """Containers before volumes, which they hold. What fails is found by `find`."""
        if self.host is None:
            return
        try:
            found = list(self._found())
        except DockerError:
            return
        for kind, name in found:
            command = ("rm", "--force", "--volumes") if kind == "container" else ("volume", "rm", "--force")
            try:
                docker(*command, name, host=self.host)
            except DockerError:  # told by `find`
                continue

    def _found(self) -> Sequence[tuple[str, str]]:
        containers = docker("ps", "--all", "--filter", self._filter, "--format", "{{.Names}}", host=self.host)
        volumes = docker("volume", "ls", "--filter", self._filter, "--format", "{{.Name}}", host=self.host)
        return [*(("container", n) for n in containers.split()), *(("volume", n) for n in volumes.split())]
