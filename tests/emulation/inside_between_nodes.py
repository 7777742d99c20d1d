"""In fresh namespaces: two nodes of a run, without a link, one of which leaves a word for the other; prints both."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from pathlib import Path

from testbed.core.record.run_directory import OWN_UID, RUNTIME_ROOT, RunDir
from testbed.orchestrator.emulation.containers.runc_container import Container
from testbed.orchestrator.emulation.containers.sandbox import Sandbox
from testbed.orchestrator.emulation.kernel.namespaces import own_sysfs
from testbed.orchestrator.emulation.links.node import WorkerNode
from testbed.orchestrator.machine.clone import CLONE
from testbed.orchestrator.machine.rights import Rights

LIMIT_S = 120.0
PROGRAM = Path(__file__).parent / "between_nodes.py"


def last_line(log: Path) -> str:
    deadline_s = time.monotonic() + LIMIT_S
    while not (lines := [line for line in log.read_text().splitlines() if line.startswith("{")]):
        assert time.monotonic() < deadline_s, f"{log.name}: nothing said within {LIMIT_S:.0f} s:\n{log.read_text()}"
        time.sleep(0.05)
    return lines[-1]


def main() -> None:
    work, run_id = Path(sys.argv[1]), sys.argv[2]
    RUNTIME_ROOT.mkdir(parents=True, exist_ok=True)
    own_sysfs()
    run = RunDir(work / run_id)
    run.runtime.mkdir(mode=0o700)
    box = work / "box"
    box.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "mode=711", "box", str(box)], check=True)
    run.socket.touch()
    rights = Rights(rootless=OWN_UID != 0)
    sandbox = Sandbox(run_id, CLONE, CLONE / "runs", run.socket, box, 1 << 28, rights=rights)
    nodes = {name: WorkerNode(f"w{index}") for index, name in enumerate(("leave", "take"))}
    root = sandbox.root
    containers = {}
    try:
        for name, node in nodes.items():
            sandbox.rendezvous(name).touch()
            containers[name] = Container(sandbox, root, name, node.namespace.path, work / f"{name}.log")
        said = {}
        for name, container in containers.items():  # one after the other: what is left is there when it is taken
            container.start([sys.executable, str(PROGRAM), name], {"PATH": "/usr/bin:/bin"})
            said[name] = json.loads(last_line(container.log))
        sys.stdout.write(json.dumps(said) + "\n")
    finally:
        for container in containers.values():
            container.kill()
            container.delete()
        for node in nodes.values():
            node.terminate()
        shutil.rmtree(run.runtime)


if __name__ == "__main__":
    main()
