"""Runs a file of this folder in namespaces of its own."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from testbed.orchestrator.machine.clone import CLONE, environment
from tests.emulation.support import IN_NAMESPACES


def run_inside(script: str, *arguments: str, timeout_s: float = 100.0) -> Any:
    """Run it as the first process of fresh namespaces; returns the JSON of its last line."""
    done = subprocess.run(
        [*IN_NAMESPACES, sys.executable, "-m", f"tests.netem.{Path(script).stem}", *arguments],
        capture_output=True,
        text=True,
        timeout=timeout_s,
        cwd=CLONE,
        env=environment(),
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.strip().splitlines()[-1])
