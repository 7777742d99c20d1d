"""A process ends with the one that started it, also where that is killed or had ended before."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

from tests.waiting import wait_until

PARENT = """
import functools, os, subprocess, sys, time
from testbed.core.processes import end_with
child = subprocess.Popen(["sleep", "900"], preexec_fn=functools.partial(end_with, os.getpid()))
print(child.pid, flush=True)
time.sleep(900)
"""


def _has_ended(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True


def test_a_child_ends_with_a_parent_that_is_killed() -> None:
    with subprocess.Popen([sys.executable, "-c", PARENT], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        parent.kill()
    wait_until(lambda: _has_ended(child), "the child of a parent that was killed")


def test_a_child_whose_parent_had_ended_ends_at_once() -> None:
    script = "from testbed.core.processes import end_with; end_with(1 << 22); print('goes on')"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (-signal.SIGKILL, "")


def test_a_child_with_its_parent_goes_on() -> None:
    script = f"from testbed.core.processes import end_with; end_with({os.getpid()}); print('goes on')"
    assert subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
