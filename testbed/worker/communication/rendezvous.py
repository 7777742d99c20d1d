"""Rendezvous of ranks: a file that all nodes share, or rank 0's port.

Ranks that come later find the values that others have put there.
"""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Any

import torch.distributed as dist  # noqa: TID251 - the store alone; what ranks send each other goes through communicator.py


class Rendezvous:
    """A store of a process group, which outlives the ranks that have used it.

    Raises:
        RuntimeError, OSError: The store cannot be reached; raised by torch.
    """

    def __init__(self, rank: int, world_size: int, *, address: str, port: int, store: str, timeout_s: float) -> None:
        """Open the store, and meet the other ranks.

        Args:
            world_size: Number of ranks that meet before any continues; 0: they have met already.
            store: Path of the file; empty: rank 0 has the store in its memory, at `address` and `port`.
        """
        timeout = datetime.timedelta(seconds=timeout_s)
        self.folder = Path(store).parent if store else None
        """Folder that all nodes share, and that outlives each of them; None: there is none."""
        self.place: Any
        if store:
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
