"""In fresh namespaces: containers of a run that try every way out and say what they are; print what they said.

Of each kind, started by runc and forked from the fork server, one tries and one only tells of itself. Beside them is
what they must not reach: a host key, a host socket, a host process, another run's record, a raw device.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import socket
import stat
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

from testbed.core.record.run_directory import OWN_UID, RUNTIME_ROOT, RunDir
from testbed.core.record.telemetry import Channel, Welcome
from testbed.core.spec.run_spec import Part, RunSpec
from testbed.orchestrator.emulation.containers.driver import NO_DRIVER, Driver, find
from testbed.orchestrator.emulation.containers.runc_container import Container
from testbed.orchestrator.emulation.containers.sandbox import Sandbox
from testbed.orchestrator.emulation.kernel.namespaces import own_sysfs
from testbed.orchestrator.emulation.links.node import WorkerNode
from testbed.orchestrator.machine.clone import CLONE
from testbed.orchestrator.machine.rights import Rights
from testbed.orchestrator.run.workers.fork_server import (
    PAUSE,
    ForkedProcess,
    ForkServerClient,
    Process,
    interpreter_environment,
)
from topologies import lan

HERE = Path(__file__).parent
NODES = ("tries", "tells", "forked-tries", "forked-tells", "forked-stays")
MEMORY_BYTES = 1 << 28


OF_KERNEL = ((10, 229), (1, 11), (10, 237), (10, 200))
"""Devices that no container has of its own: fuse, kmsg, loop-control, tun."""


def stand_in(place: Path) -> Driver:
    """A driver of two devices, whose library is one of this machine's; its devices are the kernel's own."""
    (place / "dev").mkdir()
    (place / "lib").mkdir()
    for name, numbers in zip(("nvidia0", "nvidia1", "nvidiactl", "nvidia-uvm"), OF_KERNEL, strict=True):
        os.mknod(place / "dev" / name, stat.S_IFCHR | 0o600, os.makedev(*numbers))
    library = next(Path("/").glob("lib/*-linux-gnu/libutil.so.1"))
    shutil.copy(library, place / "lib" / "libcuda.so.1.2.3")
    (place / "lib" / "libcuda.so.1").symlink_to("libcuda.so.1.2.3")
    return find(place / "dev", [place / "lib"])


def spec_of(arguments: list[str]) -> RunSpec:
    params = {"tries": {"forked-tries": arguments}, "takes_bytes": {"forked-tries": 2 * MEMORY_BYTES}}
    return RunSpec(
        topology=lan.build(workers=2),
        workload=Part("probing", "probing_workload.Probing", params),
        strategy=Part("ddp", "testbed.worker.strategies.ddp.DDP"),
        compressor=Part("none", "compressors.none.Uncompressed"),
        device=Part("native", "testbed.core.device.Native"),
        steps=1,
    )


def welcome_all(server: socket.socket, spec: RunSpec) -> None:
    """What an orchestrator does, but to the node that is to stay: it waits for its welcome."""
    held = []
    with contextlib.suppress(OSError):
        while True:
            channel = Channel(server.accept()[0])
            hello = channel.receive() or {}
            held.append(channel)
            if hello["node"] != "forked-stays":
                channel.send_welcome(
                    Welcome(
                        spec=spec.to_json(),
                        rank=0,
                        world_size=2,
                        interface="eth0",
                        master_address="127.0.0.1",
                        master_port=1,
                    )
                )


def start(
    containers: dict[str, Container], fork_server: ForkServerClient, run_id: str, arguments: list[str]
) -> dict[str, Process]:
    environment = interpreter_environment(run_id) | containers["tries"].sandbox.driver.environment()
    containers["tries"].start([sys.executable, str(HERE / "attempts.py"), *arguments], {"PATH": "/usr/bin:/bin"})
    containers["tells"].start([sys.executable, str(HERE / "facts.py")], environment)
    started: dict[str, Process] = {"tries": containers["tries"], "tells": containers["tells"]}
    for node in NODES[2:]:
        containers[node].start(list(PAUSE), {"PATH": "/usr/bin:/bin", "LONGHAUL_RUN": run_id})
        started[node] = fork_server.fork(containers[node], {**environment, "LONGHAUL_NODE": node}, CLONE)
    return started


def wait(processes: dict[str, Process], fork_server: ForkServerClient) -> dict[str, int | None]:
    deadline_s = time.monotonic() + 120
    while any(processes[node].exit_code() is None for node in NODES[:4]) and time.monotonic() < deadline_s:
        assert fork_server.failure is None, fork_server.failure
        time.sleep(0.05)
    return {node: process.exit_code() for node, process in processes.items()}


def _is_gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True


def kill_zygote(fork_server: ForkServerClient, staying: Process) -> dict[str, Any]:
    """With its workers it must take the one that lives."""
    assert isinstance(staying, ForkedProcess) and staying.pid is not None
    lived = Path(f"/proc/{staying.pid}").exists()
    pidfd, gone = os.pidfd_open(staying.pid), False
    fork_server._process.kill()
    deadline_s = time.monotonic() + 60
    while time.monotonic() < deadline_s and (fork_server.failure is None or not (gone := _is_gone(staying.pid))):
        time.sleep(0.01)
    os.close(pidfd)
    return {"lived": lived, "gone": gone, "said": fork_server.failure}


def lines(path: Path) -> list[Any]:
    return [json.loads(line) for line in path.read_text().splitlines() if line.startswith("{")]


def main() -> None:
    work_of_test, run_id, arguments = Path(sys.argv[1]), sys.argv[2], sys.argv[3:]
    os.environ["PYTHONPATH"] = f"{HERE}:{os.environ['PYTHONPATH']}"
    os.environ["LONGHAUL_TEST_SECRET"] = "a secret of the host"
    RUNTIME_ROOT.mkdir(parents=True, exist_ok=True)
    own_sysfs()
    run = RunDir(work_of_test / run_id)
    run.runtime.mkdir(mode=0o700)
    box = work_of_test / "box"
    box.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "mode=711", "box", str(box)], check=True)
    server = socket.socket(socket.AF_UNIX)
    server.bind(str(run.socket))
    os.chmod(run.socket, 0o666)
    server.listen()
    spec = spec_of(arguments)
    threading.Thread(target=welcome_all, args=(server, spec), daemon=True).start()
    nodes = {name: WorkerNode(f"w{index}") for index, name in enumerate(NODES)}
    rights = Rights(rootless=OWN_UID != 0)
    driver = NO_DRIVER if rights.rootless else stand_in(work_of_test)
    sandbox = Sandbox(
        run_id=run_id,
        clone=CLONE,
        runs=CLONE / "runs",
        socket=run.socket,
        work=box,
        memory_bytes=MEMORY_BYTES,
        rights=rights,
        driver=driver,
        nodes=NODES,
    )
    root = sandbox.root
    for name in NODES:
        sandbox.rendezvous(name).touch()
    containers = {
        name: Container(sandbox, root, name, node.namespace.path, work_of_test / f"{name}.log")
        for name, node in nodes.items()
    }
    try:
        with ForkServerClient(spec, run, rights, driver) as fork_server:
            processes = start(containers, fork_server, run_id, arguments)
            codes = wait(processes, fork_server)
            ended = kill_zygote(fork_server, processes["forked-stays"])
        said = {name: lines(containers[name].log) for name in NODES}
        logs = {name: containers[name].log.read_text()[-2000:] for name in NODES}
        sys.stdout.write(json.dumps({"codes": codes, "said": said, "fork-server": ended, "logs": logs}) + "\n")
    finally:
        for container in containers.values():
            container.kill()
            container.delete()
        for node in nodes.values():
            node.terminate()
        shutil.rmtree(run.runtime)


if __name__ == "__main__":
    main()
