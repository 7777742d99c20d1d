"""A process ends with the one that started it, however that ended, and its standard streams are there."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from testbed.orchestrator.machine.clone import CLONE
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


SAYS = """
import os, sys
from testbed.core.processes import open_standard_streams
open_standard_streams()
kept = open(sys.argv[1], "wb", buffering=0)
print("out")
sys.stdout.flush()
sys.stderr.write("err")
sys.stderr.flush()
os.system("echo child; echo child >&2")
assert sys.stdin.read() in ("", "given") and kept.fileno() > 2
sys.exit(7)
"""


@pytest.mark.parametrize(
    "streams", ["<&-", ">&-", "2>&-", "<&- >&-", "<&- 2>&-", ">&- 2>&-", "<&- >&- 2>&-", "1</dev/null", "0>/dev/null"]
)
def test_closed_standard_streams_do_no_harm(streams: str, tmp_path: Path) -> None:
    other = tmp_path / "other"
    call = ["bash", "-c", f'"$0" -c "$1" "$2" {streams}', sys.executable, SAYS, str(other)]
    done = subprocess.run(call, input="given", capture_output=True, text=True, check=False, cwd=CLONE)
    assert done.returncode == 7, done.stderr
    assert other.read_bytes() == b""
    assert done.stdout in ("", "out\nchild\n") and done.stderr in ("", "errchild\n")
    assert ("out" in done.stdout) == (">&-" not in streams.replace("2>&-", "") and "1<" not in streams)
    assert ("err" in done.stderr) == ("2>&-" not in streams)
