"""A dockerd of the tests' own, which shares nothing with one of the machine's."""

from __future__ import annotations

import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.slow.support import run

START_LIMIT_S = 60.0
REAL_TIME = Path("/sys/fs/cgroup/cpu/cpu.rt_runtime_us")
"""Where the kernel has it, containers have no real-time but what their daemon gives."""
BOUNDED = "bounded"
"""A runtime of it for privileged containers where root lacks a capability."""


@contextmanager
def served(*, real_time: bool = False) -> Iterator[Path]:
    """The folder of a daemon that DOCKER_HOST names meanwhile.

    Args:
        real_time: True for one whose containers may be given real-time; it starts none whose cgroups are a node's.
    """
    with tempfile.TemporaryDirectory(prefix="lh-docker-") as name:
        place = Path(name)
        place.chmod(0o711)
        address = f"unix://{place}/docker.sock"
        command = ["dockerd", "--host", address, "--data-root", f"{place}/data", "--exec-root", f"{place}/exec"]
        command += ["--pidfile", f"{place}/pid", "--iptables=false", "--bridge=none"]
        command += ["--add-runtime", f"{BOUNDED}={Path(__file__).with_name('bounded_runc.py')}"]
        if real_time and REAL_TIME.exists():
            command += [f"--cpu-rt-runtime={REAL_TIME.read_text().strip()}"]
        with (place / "log").open("wb") as log, pytest.MonkeyPatch.context() as patch:
            process = subprocess.Popen(
                [*command, "--exec-opt", "native.cgroupdriver=cgroupfs"], stdout=log, stderr=log, start_new_session=True
            )
            try:
                patch.setenv("DOCKER_HOST", address)
                _wait_for(process, place / "log")
                yield place
            finally:
                process.terminate()
                process.wait(60)
                run(f"umount {place}/exec/netns/default", 20)  # of a host's network, which dockerd does not take back


def _wait_for(process: subprocess.Popen[bytes], log: Path) -> None:
    deadline_s = time.monotonic() + START_LIMIT_S
    while run("docker version", 20).returncode != 0:
        assert process.poll() is None and time.monotonic() < deadline_s, log.read_text()[-2000:]
        time.sleep(0.2)
