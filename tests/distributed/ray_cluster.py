"""Two real Ray nodes on this machine, of which one can be lost."""

from __future__ import annotations

import importlib.util
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import pytest

LIMIT_S = 400.0
_RAY = str(Path(sys.executable).with_name("ray"))
_SMALL = ("--node-ip-address=127.0.0.1", "--num-cpus=1", "--object-store-memory=100000000", "--disable-usage-stats")
_MARK = "LONGHAUL_RAY_NODE"
"""In the environment of all processes of a node: their sessions and groups are Ray's affair."""


def needs(module: str) -> pytest.MarkDecorator:
    found = importlib.util.find_spec(module) is not None
    return pytest.mark.skipif(not found, reason=f"{module} is not installed (make setup)")


class Cluster:
    """Two Ray nodes with a resource `longhaul` of 1 each; none of their processes outlives the context."""

    def __init__(self, folder: Path, environ: Mapping[str, str]) -> None:
        self._environ = {**environ, "RAY_USAGE_STATS_ENABLED": "0"}
        self._nodes: list[subprocess.Popen[bytes]] = []
        self._folder = folder
        self._log = folder / "ray.log"
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        self.address = f"127.0.0.1:{port}"
        self._head = (f"--port={port}", "--head", "--include-dashboard=false", f"--temp-dir={folder}")

    def __enter__(self) -> Cluster:
        try:
            for number, words in enumerate((self._head, (f"--address={self.address}",)), 1):
                self._start(*words)
                self._wait_for(r"Ray runtime started[\s\S]*" * number)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for number in reversed(range(len(self._nodes))):
            self.kill(number)

    def _start(self, *words: str) -> None:
        command = [_RAY, "start", "--block", *words, *_SMALL, '--resources={"longhaul": 1}']
        environ = {**self._environ, _MARK: self._mark(len(self._nodes))}
        with self._log.open("ab") as log:
            node = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environ, start_new_session=True
            )
        self._nodes.append(node)

    def _mark(self, number: int) -> str:
        return f"{self._folder}/{number}"

    def _wait_for(self, pattern: str) -> None:
        deadline_s = time.monotonic() + LIMIT_S
        while not re.search(pattern, self._log.read_text()):
            assert self._nodes[-1].poll() is None and time.monotonic() < deadline_s, self._log.read_text()
            time.sleep(0.1)

    def kill(self, number: int) -> None:
        """As when the machine loses its power. Returns when none of its processes is left."""
        deadline_s = time.monotonic() + LIMIT_S
        while left := _processes(self._nodes[number].pid, f"{_MARK}={self._mark(number)}".encode()):
            assert time.monotonic() < deadline_s, f"processes that cannot be killed: {left}"
            for pid in left:
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    continue
            self._nodes[number].poll()  # takes the leader away, which would be found for ever
            time.sleep(0.05)
        self._nodes[number].wait()


def _processes(leader: int, mark: bytes) -> list[int]:
    """Those with the mark or of the leader's session, and all below them: setting a title hides a mark."""
    parents: dict[int, int] = {}
    found: set[int] = set()
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            state, parent, _, session = (folder / "stat").read_text().rpartition(")")[2].split()[:4]
            marked = mark in (folder / "environ").read_bytes().split(b"\0")
        except (FileNotFoundError, ProcessLookupError, PermissionError):  # gone, or somebody else's
            continue
        if state == "Z":
            continue
        parents[int(folder.name)] = int(parent)
        if marked or int(session) == leader:
            found.add(int(folder.name))
    while more := {pid for pid, parent in parents.items() if parent in found} - found:
        found |= more
    return sorted(found)
