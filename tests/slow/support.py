"""A command as it is typed, in this tree or in a clone of it, and what the pages for newcomers say to type."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
INTERRUPTED = 130
PAGES = ("README.md", "docs/commands.md")
"""Every command in their blocks of `sh` is run."""
FIRST_SECTION = "Compare two runs"
"""Of the README: its first block is a newcomer's path."""
_OF_THESE_TESTS = ("MAKEFLAGS", "MAKELEVEL", "MFLAGS", "PYTHONPATH", "VIRTUAL_ENV")
"""In the environment: who types a command has no make around it, and no other tree's modules."""


def run(command: str, limit_s: float, where: Path = ROOT) -> subprocess.CompletedProcess[str]:
    """By bash; without sudo, since these tests are root's."""
    return subprocess.run(
        ["bash", "-c", command.replace("sudo ", "")],
        cwd=where,
        env=_environment(),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=limit_s,
        check=False,
    )


def _environment() -> dict[str, str]:
    return {key: value for key, value in os.environ.items() if key not in _OF_THESE_TESTS} | {"COLUMNS": "120"}


def status_of(done: subprocess.CompletedProcess[str]) -> int:
    """What the command itself ended with: make ends with 2 whatever that was, and says it. A make that is interrupted
    waits for its command, says how that ended if not with 0, and ends by the same signal."""
    said = re.search(r"^make: \*\*\* \[.*\] (?:Error (\d+)|Interrupt)$", done.stderr, re.MULTILINE)
    if said:
        return int(said[1] or INTERRUPTED)
    return 0 if done.returncode == -signal.SIGINT and done.args[-1].startswith("make ") else done.returncode


class Serving:
    """A command that serves until Ctrl-C, in the foreground of a terminal of its own."""

    def __init__(self, command: str, where: Path) -> None:
        with tempfile.NamedTemporaryFile("w", prefix="longhaul-said-", delete=False) as file:
            self._output = Path(file.name)
            self.process = subprocess.Popen(
                ["bash", "-c", command.replace("sudo ", "")],
                cwd=where,
                env=_environment(),
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    @property
    def said(self) -> str:
        return self._output.read_text()

    def wait_for(self, pattern: str, limit_s: float) -> str:
        """The first group of a line that it says."""
        deadline_s = time.monotonic() + limit_s
        while True:
            has_ended = self.process.poll() is not None
            if found := re.search(pattern, self.said, re.MULTILINE):
                return found[1]
            assert not has_ended, f"it ended before it said {pattern!r}:\n{self.said}"
            assert time.monotonic() < deadline_s, f"{pattern!r}: not within {limit_s:.0f} s:\n{self.said}"
            time.sleep(0.1)

    def interrupt(self, limit_s: float) -> int:
        """As Ctrl-C does: the whole foreground group. Returns what the command itself ended with."""
        os.killpg(self.process.pid, signal.SIGINT)
        code = self.process.wait(limit_s)
        return status_of(subprocess.CompletedProcess(self.process.args, code, self.said, self.said))

    def close(self) -> None:
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
        self._output.unlink()


@contextmanager
def serving(command: str, where: Path) -> Iterator[Serving]:
    one = Serving(command, where)
    try:
        yield one
    finally:
        one.close()


def processes_with(argument: str) -> list[int]:
    """Those that were started with it."""
    wanted, found = argument.encode(), []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            found += [int(path.parent.name)] if wanted in path.read_bytes().split(b"\0") else []
        except OSError:  # it has ended meanwhile
            continue
    return found


def blocks_of(page: str, heading: str = "") -> list[list[str]]:
    """The commands of a page, block by block; of one section alone if its heading is given."""
    text = (ROOT / page).read_text()
    if heading:
        _, is_there, rest = text.partition(f"\n## {heading}\n")
        assert is_there, f"{page} has no section {heading!r}"
        text = rest.partition("\n## ")[0]
    blocks = re.findall(r"^```sh\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    return [list(_commands(block)) for block in blocks]


def _commands(block: str) -> Iterator[str]:
    for line in block.replace("\\\n", " ").splitlines():
        if words := shlex.split(line, comments=True):
            yield shlex.join(words)
