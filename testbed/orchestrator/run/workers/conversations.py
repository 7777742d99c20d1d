"""Conversations of the orchestrator with the workers: who has connected, its welcome, its messages, words to it."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from testbed.core.record.telemetry import RENDEZVOUS_IN_NODE, STORE_IN_NODE, Channel, Welcome
from testbed.core.spec.run_spec import RunSpec
from testbed.orchestrator.config.programs import MASTER_PORT
from testbed.orchestrator.emulation.links.network import WORKER_INTERFACE
from testbed.orchestrator.run.workers.intake import Inbox, Intake
from testbed.orchestrator.run.workers.listeners import WorkerListeners, peer_pid
from testbed.orchestrator.run.workers.messages import Message

_UNKNOWN_S = 5.0
"""How long a connection may be of a process that nobody knows yet."""
_POLL_S = 0.1


class Conversations:
    """One with each node of a run, held by its latest process.

    Args:
        greet: returns the welcome of a node's worker.
        node_of: returns the node of a process, if it is known.
        most_steps: number of the run's last step; None if it is unknown.
        latest_s: returns the latest moment that a worker may tell of, as `Intake` takes it.
    """

    def __init__(
        self,
        nodes: Sequence[str],
        greet: Callable[[str], Welcome],
        node_of: Callable[[int], str | None],
        most_steps: int | None,
        latest_s: Callable[[], float | None],
    ) -> None:
        self._nodes = nodes
        self._greet, self._node_of_process = greet, node_of
        self._most_steps, self._latest_s = most_steps, latest_s
        self.channels: dict[str, Channel] = {}
        self.inbox: Inbox[tuple[str, Channel, Message]] = Inbox()
        self._listeners = WorkerListeners(self.listen)

    def open(self, path: Path) -> None:
        """Make a socket for all nodes, which are told apart by their processes."""
        self._listeners.open(path, self._node_of, len(self._nodes))

    def open_for(self, node: str, path: Path) -> None:
        self._listeners.open_for(node, path)

    def close(self) -> None:
        self._listeners.close()

    def tell(self, nodes: Sequence[str], message: Message) -> None:
        """Send a message to the workers of `nodes`.

        Raises:
            OSError: one of them does not listen any more.
        """
        for node in nodes:
            self.channels[node].send(message)

    def end(self, node: str) -> None:
        """Await another process of `node`; what the one before has said is nobody's."""
        self.channels.pop(node, None)

    def next(self, timeout_s: float) -> tuple[str, Message] | None:
        """Return the oldest message and its node; None of a process that is no more.

        Raises:
            queue.Empty: there is none in `timeout_s`.
        """
        node, channel, message = self.inbox.get(timeout=timeout_s)
        return (node, message) if channel is self.channels.get(node) else None

    def listen(self, node: str, channel: Channel) -> None:
        """Hear one process to its end. Whatever goes wrong with what it says is a fault of its."""
        if node in self.channels:
            channel.connection.close()
            return
        self.channels[node] = channel
        try:
            self._hear(node, channel)
        except OSError:
            raise
        except Exception as error:  # or nobody would hear this worker any more, and it would wait for ever
            kind = "" if isinstance(error, ValueError) else f"what cannot be read: {type(error).__name__}: "
            self.inbox.put((node, channel, {"event": "fault", "message": f"sent {kind}{error}"}))

    def _node_of(self, connection: socket.socket) -> str | None:
        """Return the node of the process at the other end; what it says of itself does not count."""
        pid = peer_pid(connection)
        deadline_s = time.monotonic() + _UNKNOWN_S
        while (node := self._node_of_process(pid)) is None and time.monotonic() < deadline_s:
            time.sleep(_POLL_S)  # it has not been told of its process yet
        return node

    def _hear(self, node: str, channel: Channel) -> None:
        hello = channel.receive()
        if hello is not None:
            if hello.get("event") != "hello" or hello.get("node") != node:
                raise ValueError(f"expected its hello, found {hello!r:.80}")
            channel.send_welcome(self._greet(node))
            intake = Intake(self._nodes.index(node), node, self._most_steps)
            for message in channel.messages():
                for taken in intake.taken(message, channel.line_bytes, self._latest_s()):
                    self.inbox.put((node, channel, taken), channel.line_bytes)


def welcome(
    spec: RunSpec, node: str, master_address: str, profile: dict[str, Any] | None, accelerators: int, *, is_back: bool
) -> Welcome:
    """Return the welcome of a node's worker.

    Args:
        master_address: Address of rank 0's node.
        profile: Times of the emulated device; None where none are emulated.
        accelerators: Number of devices that ranks share.
        is_back: True if an event has started the node again.
    """
    nodes = [one.name for one in spec.topology.nodes]
    return Welcome(
        spec={**spec.to_json(), "events": []},  # a trace has thousands; workers need none
        rank=nodes.index(node),
        world_size=len(nodes),
        interface=WORKER_INTERFACE,
        master_address=master_address,
        master_port=MASTER_PORT,
        rendezvous=RENDEZVOUS_IN_NODE,
        folder=STORE_IN_NODE,
        profile=profile,
        accelerators=accelerators,
        is_back=is_back,
    )
