"""How a client ends that the server has put out, or that has lost it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from testbed.core.errors import Left
from testbed.worker.methods.parameter_server.transport.connection import Gone
from testbed.worker.methods.parameter_server.transport.frame_errors import Refused


@contextmanager
def left_once_out() -> Iterator[None]:
    """It ends alone; servers raise none of these."""
    try:
        yield
    except (Gone, Refused) as error:
        raise Left(f"this client is out: {error}") from error
