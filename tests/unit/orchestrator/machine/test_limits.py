"""A run may open as many files as it is allowed at most; what runs in its nodes has the limit it always had."""

from __future__ import annotations

import json
import resource
import subprocess
import sys
from pathlib import Path

from testbed.orchestrator.machine.clone import CLONE, environment

SOFT = 64
CODE = """
import json, os, resource, sys
from pathlib import Path
from types import SimpleNamespace
from testbed.orchestrator.emulation.containers.runc_container import Container
from testbed.orchestrator.emulation.containers.sandbox import Sandbox
from testbed.orchestrator.machine.limits import raise_limit
raise_limit()
files = [os.open(os.devnull, os.O_RDONLY) for _ in range(1100)]
here = Path(sys.argv[1])
sandbox = Sandbox(run_id="r", clone=here, runs=here, socket=here / "s", work=here, memory_bytes=1 << 20)
container = Container(sandbox, SimpleNamespace(path=here), "n", "/proc/self/ns/net", here / "log")
limit, _ = container._config(["true"], {}, here)["process"]["rlimits"]
container.pid = os.fork()
if not container.pid:
    os._exit(3)
container._pidfd = os.pidfd_open(container.pid)
container.wait(100)
print(json.dumps([resource.getrlimit(resource.RLIMIT_NOFILE), limit, container.exit_code()]))
"""


def test_the_limit_is_raised_for_the_run_and_not_for_its_nodes(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    done = subprocess.run(
        ["prlimit", f"--nofile={SOFT}:", sys.executable, "-c", CODE, str(tmp_path)],
        capture_output=True,
        text=True,
        cwd=CLONE,
        env=environment(),
        check=False,
    )
    assert done.returncode == 0, done.stderr
    limits, in_node, code = json.loads(done.stdout)
    assert limits == [hard, hard]
    assert in_node == {"type": "RLIMIT_NOFILE", "soft": SOFT, "hard": hard}
    assert code == 3
