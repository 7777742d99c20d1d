"""Rendezvous of ranks: the run's key-value service, a file of one machine, or rank 0's port.

Ranks that come later find the values that others have put there.
"""

from __future__ import annotations

import contextlib
import datetime
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch.distributed as dist  # noqa: TID251 - the store alone; what ranks send each other goes through communicator.py

from testbed.core.record.telemetry import connect

WAIT_S = 1.0
"""Seconds that the service lets one request wait; others of this rank wait meanwhile."""


class ServiceStore(dist.Store):  # type: ignore[name-defined]
    """The key-value service that a run's orchestrator keeps, as a store of torch's.

    One JSON object a line each way: {"do": "put" | "get" | "add" | "turn" | "over", ...} and {"value": ...}, or
    {"refused": why}. A "get" is answered with null where nobody has put the name there in `WAIT_S`.

    Raises:
        RuntimeError, OSError: The service is gone, or refuses; its limits are in `rendezvous_service`.
    """

    def __init__(self, path: str, timeout_s: float) -> None:
        super().__init__()
        self._channel, self._lock = connect(path), threading.Lock()
        self._timeout_s = timeout_s

    def ask(self, **request: Any) -> Any:
        """Return the answer to one request."""
        with self._lock:
            self._channel.send(request)
            answer = self._channel.receive()
        if answer is None:
            raise RuntimeError("the rendezvous service is gone")
        if "refused" in answer:
            raise RuntimeError(f"the rendezvous service refuses: {answer['refused']}")
        return answer["value"]

    def close(self) -> None:
        """Give back what the service holds for this rank, but for its values."""
        self._channel.connection.close()

    def set(self, key: str, value: bytes | str) -> None:
        self.ask(do="put", name=key, value=(value.encode() if isinstance(value, str) else value).hex())

    def get(self, key: str) -> bytes:
        return self._awaited(key, self._timeout_s)

    def wait(self, keys: Sequence[str], timeout: datetime.timedelta | None = None) -> None:
        for key in keys:
            self._awaited(key, self._timeout_s if timeout is None else timeout.total_seconds())

    def add(self, key: str, amount: int) -> int:
        return int(self.ask(do="add", name=key, amount=amount))

    def _awaited(self, key: str, timeout_s: float) -> bytes:
        deadline_s = time.monotonic() + timeout_s
        while (value := self.ask(do="get", name=key)) is None:
            if time.monotonic() > deadline_s:
                raise RuntimeError(f"nobody has put {key!r} at the rendezvous within {timeout_s:g} s")
        return bytes.fromhex(value)


class Turn:
    """The turn of a number, which one rank has at a time; the service takes it back from who is gone."""

    def __init__(self, store: ServiceStore, number: int) -> None:
        self._store, self._number = store, number

    def take(self) -> None:
        """Wait for it."""
        while not self._store.ask(do="turn", number=self._number):
            continue

    def give(self) -> None:
        """Let another rank have it."""
        self._store.ask(do="over", number=self._number)

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Have it for a while."""
        self.take()
        yield
        self.give()


class Rendezvous:
    """A store of a process group, which outlives the ranks that have used it.

    Raises:
        RuntimeError, OSError: The store cannot be reached; raised by torch.
    """

    def __init__(
        self, rank: int, world_size: int, *, address: str, port: int, store: str, timeout_s: float, service: str = ""
    ) -> None:
        """Open the store, and meet the other ranks.

        Args:
            world_size: Number of ranks that meet before any continues; 0: they have met already.
            service: Path of the socket of a run's service; empty: there is none.
            store: Path of a file that all ranks share; empty: rank 0 has the store in its memory, at `address` and
                `port`.
        """
        timeout = datetime.timedelta(seconds=timeout_s)
        self.folder: Path | None = None
        """Folder of this node alone that outlives its processes; None: there is none."""
        self.place: Any
        if service:
            self.place = ServiceStore(service, timeout_s)
        elif store:
            self.place = dist.FileStore(store, world_size or -1)  # type: ignore[attr-defined]
            self.place.set_timeout(timeout)
        else:
            self.place = dist.TCPStore(  # type: ignore[attr-defined]
                *(address, port, world_size or None),
                is_master=rank == 0,
                timeout=timeout,
                wait_for_workers=world_size > 0,
            )

    def put(self, name: str, value: bytes) -> None:
        """Store a value under a name, instead of the present one."""
        self.place.set(f"longhaul/{name}", value.hex())

    def get(self, name: str) -> bytes:
        """Wait for the value of a name, and return it.

        Raises:
            RuntimeError: No rank has put it there in time; raised by torch.
        """
        return bytes.fromhex(self.place.get(f"longhaul/{name}").decode())

    def turn(self, number: int) -> Turn | None:
        """Return the turn of this number, which one rank of a run has at a time; without a service there is none."""
        return Turn(self.place, number) if isinstance(self.place, ServiceStore) else None

    def close(self) -> None:
        """Leave; values stay."""
        if isinstance(self.place, ServiceStore):
            self.place.close()
