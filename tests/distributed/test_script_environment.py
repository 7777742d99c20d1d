"""What the installed torch's torchrun sets for its processes, a script's node has too."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from testbed.orchestrator.config.config import resolve
from testbed.orchestrator.config.programs import program_of
from tests.distributed.harness import HANG_S, port_of_ones_own

HERE = Path(__file__).parent
PRINTS = "import json, os\nprint(json.dumps(dict(os.environ)))\n"


def test_all_variables_of_torchrun_are_set(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    script = tmp_path / "prints.py"
    script.write_text(PRINTS)
    given = {"PATH": os.environ["PATH"], "HOME": str(tmp_path)}
    with port_of_ones_own() as port:
        command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=1", "--master-addr=127.0.0.1"]
        command += [f"--master-port={port}", str(script)]
        done = subprocess.run(command, env=given, capture_output=True, text=True, timeout=HANG_S, check=True)
    theirs = json.loads(done.stdout.splitlines()[-1])
    spec = resolve(["topo=lan", "workload=script", f"workload.script={script}", "workers=1"]).spec
    ours = program_of(spec).environment(0, "127.0.0.1", "lo")
    assert len(theirs.keys() - given) > 10
    assert theirs.keys() - given.keys() - ours.keys() <= {"LC_CTYPE", "OMP_NUM_THREADS", "PYTHONUNBUFFERED"}
    same = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK", "GROUP_WORLD_SIZE", "ROLE_RANK")
    same += ("ROLE_NAME", "ROLE_WORLD_SIZE", "TORCHELASTIC_RESTART_COUNT", "TORCHELASTIC_MAX_RESTARTS")
    same += ("TORCH_NCCL_ASYNC_ERROR_HANDLING", "MASTER_ADDR")
    assert {name: ours[name] for name in same} == {name: theirs[name] for name in same}
