"""How a client ends that the server has put out, or that has lost it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from testbed.core.errors import Left
from testbed.core.frame_refusals import Refused
from testbed.worker.server.connection import Gone


@contextmanager
def left_once_out() -> Iterator[None]:
    """It ends alone; servers raise none of these."""
    try:
        yield
    except (Gone, Refused) as error:
        raise Left(f"this client is out: {error}") from error
