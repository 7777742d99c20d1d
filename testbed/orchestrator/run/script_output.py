"""Results of a user's script: rank 0's output while it runs, and the files it wrote, once it has ended."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from testbed.core.errors import RunError
from testbed.core.units import format_size
from testbed.orchestrator.emulation.containers.docker_container import DockerContainer
from testbed.orchestrator.emulation.containers.node_disk import NodeDisk
from testbed.orchestrator.emulation.containers.runc_container import Container

MAX_BEHIND_BYTES = 1 << 18
"""Output that is passed over when the script writes faster than it can be shown."""
_PIECE_BYTES = 1 << 14
_KILL_TIMEOUT_S = 5.0
MAX_LINE = 2000
"""Characters of a line that are shown."""
_LINE_ENDS = re.compile(rb"[\r\n]+")


class LiveOutput:
    """Output of one node, shown line by line as it grows in its log.

    Args:
        show: Takes a line for the terminal.
    """

    def __init__(self, node: str, log: Path, show: Callable[[str], None]) -> None:
        self._node, self._log, self._show = node, log, show
        self._at_bytes = 0
        self._rest = b""

    def begin(self) -> None:
        """Say where all output goes."""
        self._show(f"output of rank 0 on {self._node} follows; that of all ranks is in {self._log.parent}/")

    def poll(self) -> None:
        """Show what is new."""
        for piece in self._new():
            *lines, self._rest = _LINE_ENDS.split(self._rest + piece)
            if len(self._rest) > _PIECE_BYTES:
                lines, self._rest = [*lines, self._rest], b""
            for line in lines:
                self._say(line)

    def end(self) -> None:
        """Show what is left, with or without the end of its line."""
        self.poll()
        self._say(self._rest)
        self._rest = b""

    def _say(self, line: bytes) -> None:
        if text := line.decode(errors="replace").strip():
            self._show(f"[{self._node}] {text[:MAX_LINE]}{'...' if len(text) > MAX_LINE else ''}")

    def _new(self) -> Iterator[bytes]:
        try:
            with self._log.open("rb") as log:
                behind_bytes = self._log.stat().st_size - self._at_bytes
                if behind_bytes < 0:  # its middle was cut
                    self._show(f"[{self._node}] (some output is not shown: the log was cut)")
                    self._at_bytes, self._rest = max(0, self._at_bytes + behind_bytes - _PIECE_BYTES), b""
                    behind_bytes = 0
                if behind_bytes > MAX_BEHIND_BYTES:
                    passed_bytes = behind_bytes - _PIECE_BYTES
                    self._show(f"[{self._node}] ({format_size(passed_bytes)} of output are not shown)")
                    self._at_bytes += passed_bytes
                    self._rest = b""
                log.seek(self._at_bytes)
                while piece := log.read(_PIECE_BYTES):
                    self._at_bytes += len(piece)
                    yield piece
        except OSError:  # the log is a help, the record is what counts
            return


def keep(containers: Mapping[str, Container | DockerContainer], target: Path) -> Path | None:
    """End what still runs, and copy what each node wrote to its disk into `target`.

    Returns:
        `target`; None if nothing was written.

    Raises:
        RunError: The run's directory cannot take it.
    """
    disks: dict[str, NodeDisk] = {node: one.disk for node, one in containers.items() if one.disk is not None}
    for node, disk in disks.items():
        containers[node].kill()
        containers[node].wait(_KILL_TIMEOUT_S)
        try:
            disk.keep(target / node)
        except (OSError, RecursionError) as error:
            raise RunError(f"node {node}: what the script wrote cannot be kept in {target / node}: {error}") from error
    return target if target.exists() else None
