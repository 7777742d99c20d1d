"""In fresh namespaces: start one container of a run, let it try every way out, print what it reached.

Beside it stand what it must not reach: a host key, a host socket, a host process, another run's record, a raw device.
"""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import time
from pathlib import Path

from testbed.core.rundir import RUNTIME_ROOT
from testbed.orchestrator.clone import CLONE
from testbed.orchestrator.emulation.container import Container, Sandbox
from testbed.orchestrator.emulation.namespaces import own_sysfs
from testbed.orchestrator.emulation.node import WorkerNode

ATTEMPTS = Path(__file__).parent / "attempts.py"


def main() -> None:
    work_of_test, run_id, arguments = Path(sys.argv[1]), sys.argv[2], sys.argv[3:]
    RUNTIME_ROOT.mkdir(parents=True, exist_ok=True)
    own_sysfs()
    box, runs = work_of_test / "box", CLONE / "runs"
    box.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "mode=711", "box", str(box)], check=True)
    telemetry = socket.socket(socket.AF_UNIX)
    telemetry.bind(str(work_of_test / "t.sock"))
    nodes = [WorkerNode("w0"), WorkerNode("w1")]
    sandbox = Sandbox(
        run_id=run_id, clone=CLONE, runs=runs, socket=work_of_test / "t.sock", work=box, memory_bytes=1 << 28
    )
    root = sandbox.root()
    log = work_of_test / "log"
    other = Container(sandbox, root, "w1", nodes[1].namespace.path, work_of_test / "other-log")
    tried = Container(sandbox, root, "w0", nodes[0].namespace.path, log)
    try:
        other.start(["sleep", "60"], {"PATH": "/usr/bin:/bin"})
        tried.start([sys.executable, str(ATTEMPTS), *arguments], {"PATH": "/usr/bin:/bin"})
        deadline_s = time.monotonic() + 120
        while tried.exit_code() is None and time.monotonic() < deadline_s:
            time.sleep(0.05)
        sys.stdout.write(json.dumps(json.loads(log.read_text().strip().splitlines()[-1])) + "\n")
    finally:
        for container in (other, tried):
            container.kill()
            container.delete()
        for node in nodes:
            node.terminate()


if __name__ == "__main__":
    main()
