"""What a user's own script may know of the run it is in, and what it tells it."""

from __future__ import annotations

import functools
import os
from pathlib import Path
from typing import Any

from testbed.core.errors import RunError
from testbed.core.record.telemetry import SOCKET_IN_NODE, Channel, Welcome, connect
from testbed.core.spec.run_spec import Part
from testbed.core.spec.topology import Topology

ANSWER_TIMEOUT_S = 30.0
"""For the welcome, and for each message to be taken: an orchestrator that lives does so at once."""


class RunLink:
    """This process's connection to the orchestrator. It has one, whatever number of hooks there is."""

    def __init__(self, channel: Channel, welcome: Welcome) -> None:
        self._channel = channel
        self.seed = int(welcome.spec["seed"])
        self.topology = Topology.from_json(welcome.spec["topology"])
        self.compressor = Part(**welcome.spec["compressor"])

    def tell(self, message: dict[str, Any]) -> None:
        """
        Raises:
            RunError: nobody listens any more.
        """
        try:
            self._channel.send(message)
        except OSError as error:
            raise RunError(f"the run is gone and was not told of {message['event']!r}: {error}") from error


@functools.cache
def run_link() -> RunLink | None:
    """None where this process is in no run: there is no node's name in its environment, or no socket.

    Raises:
        RunError: there is a socket, but what is behind it does not answer as a run does.
    """
    node, path = os.environ.get("LONGHAUL_NODE"), os.environ.get("LONGHAUL_SOCKET", SOCKET_IN_NODE)
    if not node or not Path(path).is_socket():
        return None
    channel = None
    try:
        channel = connect(path)
        channel.connection.settimeout(ANSWER_TIMEOUT_S)
        return RunLink(channel, _welcome(channel, node))
    except (OSError, ValueError, TypeError, KeyError) as error:
        if channel is not None:
            channel.connection.close()
        raise RunError(f"node {node}: the run at {path} gave no welcome: {error}") from error


def _welcome(channel: Channel, node: str) -> Welcome:
    channel.send({"event": "hello", "node": node})
    message = channel.receive()
    if message is None:
        raise ValueError("it closed the connection; only a node's first process is heard, once")
    return Welcome(**message)
