"""A command as it is typed, in this tree, and what runs it leaves."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
RUNS = ROOT / "runs"


def run(command: str, limit_s: float) -> subprocess.CompletedProcess[str]:
    """By bash; without sudo, since these tests are root's."""
    return subprocess.run(
        ["bash", "-c", command.replace("sudo ", "")],
        cwd=ROOT,
        env={**os.environ, "COLUMNS": "120"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=limit_s,
        check=False,
    )


def status_of(done: subprocess.CompletedProcess[str]) -> int:
    """What the command itself ended with: make ends with 2 whatever that was, and says it."""
    said = re.search(r"^make: \*\*\* \[.*\] Error (\d+)$", done.stderr, re.MULTILINE)
    return int(said[1]) if said else done.returncode


def run_ids() -> set[str]:
    return {path.name for path in RUNS.iterdir()} if RUNS.exists() else set()
