"""`python -m testbed.analysis live`: serves the pages on loopback until it is stopped."""

from __future__ import annotations

import socket
import sys
from pathlib import Path

import uvicorn

from testbed.analysis.live.app import application
from testbed.core.errors import InputError

LOOPBACK = "127.0.0.1"


def serve(runs_root: Path, port: int) -> None:
    """Serve until SIGINT or SIGTERM, and print the address as soon as it answers.

    Args:
        port: 0 takes any free one.

    Raises:
        InputError: The port cannot be had.
    """
    try:
        listening = socket.create_server((LOOPBACK, port), backlog=128)
    except (OSError, OverflowError) as error:
        raise InputError(f"--port {port}: cannot be listened on: {error}") from error
    # No stream is kept open, but a browser may keep a connection.
    config = uvicorn.Config(
        application(runs_root), log_level="warning", lifespan="off", timeout_graceful_shutdown=1, server_header=False
    )
    sys.stdout.write(f"http://{LOOPBACK}:{listening.getsockname()[1]}\n")
    sys.stdout.flush()
    with listening:
        uvicorn.Server(config).run(sockets=[listening])
