"""What a worker and the orchestrator say to each other over the run's Unix socket: one JSON object a line.

    worker                                   orchestrator
    {"event": "hello", "node": "oregon-0"}  ->
                                            <-  Welcome: spec, rank, addresses, where rank 0 listens
    {"event": "warm", "rank": 0}            ->      connected to all peers, and has taken warm-up steps on its own
                                            <-  {"event": "busy"}, to some: all are warm, compute until told to rest
                                            <-  {"event": "rest"}, to those, who say `warm` again once they do
                                            <-  {"event": "go", "t0_s": monotonic seconds at which step 1 starts},
                                                or "lead_s", from now, where they share no clock
    events of `core.record.events`          ->      `model` before `warm`, from rank 0; then `start`, `step`,
                                                    `evaluation`, and what strategy and transform record
    {"event": "done", "rank": 0, ...}       ->      all steps taken, all evaluations sent
    {"event": "leaving", "rank": 2, "message": ...} others go on without this rank, and why; it ends with status 6
    {"event": "fault", "rank": 0, "message": ...}   before a non-zero exit, where the worker can still speak

A rank that comes back in mid-run is told so by its welcome; once it is "warm" it hears "go" at once.

`t_s` in a worker's events is emulated seconds since `t0_s`: (CLOCK_MONOTONIC - t0_s) / dilation. Containers share the
kernel's monotonic clock, so the events of all ranks and of the collector lie on one axis.
"""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from testbed.core.files import parse_json

MAX_LINE_BYTES = 1 << 20
SOCKET_IN_NODE = "/run/longhaul/telemetry.sock"
RENDEZVOUS_IN_NODE = "/run/longhaul/rendezvous.sock"
"""Socket of the service at which ranks find each other; each node has one of its own."""
STORE_IN_NODE = "/run/longhaul/store"
"""A directory of the node alone, which outlives its processes."""
KEPT_MODEL = "model.pt"
"""There, before rank 0 is done: the model, where it is to be kept."""


@dataclass(frozen=True, kw_only=True)
class Welcome:
    """What a worker needs to know beside the spec."""

    spec: dict[str, Any]
    rank: int
    world_size: int
    interface: str
    """The node's one emulated interface."""
    master_address: str
    master_port: int
    profile: dict[str, Any] | None = None
    """How long its device takes, as of `core.device.profile`; without, phases last as long as they take here."""
    rendezvous: str = ""
    """Socket at which ranks find each other in place of rank 0's port: over the emulated links, with their round trips,
    64 ranks would take 14 s."""
    folder: str = ""
    """A directory of the node that outlives its processes, for a model or a server's state that is to be kept."""
    accelerators: int = 0
    """Number of devices that ranks share round robin; 0: they compute on the processor."""
    is_back: bool = False
    """Whether the others are in the midst of the run, which this rank had left."""
    event: str = "welcome"


_RETRY_S = 0.2


class Channel:
    """One end of the socket. Reading and writing use separate buffers, so that neither loses the other's lines.

    Threads may send at once: an evaluation is told by a thread of its own.
    """

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        self._pending = b""
        self.line_bytes = 0
        """Of the last message that was received."""
        self._sending = threading.Lock()

    def send(self, message: dict[str, Any]) -> None:
        line = json.dumps(message, allow_nan=False).encode() + b"\n"
        with self._sending:
            self.connection.sendall(line)

    def send_welcome(self, welcome: Welcome) -> None:
        self.send(asdict(welcome))

    def receive(self) -> dict[str, Any] | None:
        """The next message; None when the other end is gone.

        Raises:
            ValueError: a line is too long, or no JSON object.
        """
        while b"\n" not in self._pending:
            chunk = self.connection.recv(65536)
            if not chunk:
                return None
            self._pending += chunk
            if len(self._pending) > MAX_LINE_BYTES:
                raise ValueError(f"a message of more than {MAX_LINE_BYTES} bytes")
        line, self._pending = self._pending.split(b"\n", 1)
        self.line_bytes = len(line) + 1
        try:
            message = parse_json(line.decode(), strict=True)
        except ValueError as error:
            raise ValueError(f"a message that is no JSON of a run ({error}): {line[:80]!r}") from error
        if not isinstance(message, dict):
            raise ValueError(f"a message that is no JSON object: {line[:80]!r}")
        return message

    def messages(self) -> Iterator[dict[str, Any]]:
        while (message := self.receive()) is not None:
            yield message


def connect(path: str = SOCKET_IN_NODE) -> Channel:
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connection.connect(path)
    return Channel(connection)


def connect_over_network(host: str, port: int, wait_s: float) -> Channel:
    """To an orchestrator on another machine, or on this one, that may not be there yet.

    Raises:
        OSError: nobody has listened there in `wait_s`.
    """
    deadline_s = time.monotonic() + wait_s
    while True:
        try:
            connection = socket.create_connection((host, port), timeout=max(1.0, deadline_s - time.monotonic()))
        except OSError:
            if time.monotonic() > deadline_s:
                raise
            time.sleep(_RETRY_S)
            continue
        connection.settimeout(None)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        return Channel(connection)
