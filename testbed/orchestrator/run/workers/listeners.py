"""Where workers connect: listening sockets of a run, each with its way to tell which node is at the other end."""

from __future__ import annotations

import contextlib
import os
import socket
import struct
import threading
from collections.abc import Callable
from pathlib import Path

from testbed.core.record.telemetry import Channel

NodeOf = Callable[[socket.socket], str | None]
"""The node that a connection is from; None for nobody's, which is refused."""

_MAX_UNKNOWN = 1024
"""Connections of which it is not known yet whose they are; further ones wait to be accepted."""


class WorkerListeners:
    """The sockets of one run, each heard by threads of its own.

    Args:
        take: is called in a thread for each connection, and returns when that is over.
    """

    def __init__(self, take: Callable[[str, Channel], None]) -> None:
        self._take = take
        self._servers: list[socket.socket] = []
        self._unknown = threading.BoundedSemaphore(_MAX_UNKNOWN)

    def open(self, path: Path, node_of: NodeOf, backlog: int = 1) -> None:
        server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._servers.append(server)
        path.unlink(missing_ok=True)  # a pilot's
        server.bind(str(path))
        os.chmod(path, 0o666)  # the worker is nobody; on the host the directory above is root's alone
        server.listen(backlog)
        threading.Thread(target=self._accept, args=(server, node_of), name="accept", daemon=True).start()

    def open_for(self, node: str, path: Path) -> None:
        """One that this node alone sees, whichever process of it connects."""
        self.open(path, lambda _: node)

    def close(self) -> None:
        for server in self._servers:
            with contextlib.suppress(OSError):
                server.shutdown(socket.SHUT_RDWR)  # wakes the thread that accepts; closing alone does not
            server.close()

    def _accept(self, server: socket.socket, node_of: NodeOf) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = server.accept()
                self._unknown.acquire()
                threading.Thread(target=self._listen, args=(connection, node_of), daemon=True).start()

    def _listen(self, connection: socket.socket, node_of: NodeOf) -> None:
        with contextlib.suppress(OSError):
            try:
                node = node_of(connection)
            finally:
                self._unknown.release()
            if node is None:
                connection.close()
            else:
                self._take(node, Channel(connection))


def peer_pid(connection: socket.socket) -> int:
    """Return the process at the other end of a Unix socket, as the kernel names it."""
    (pid,) = struct.unpack_from("i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
    return int(pid)


def parent_pid(pid: int) -> int | None:
    """Return the parent of a process; None if it has ended."""
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except (OSError, IndexError):
        return None
