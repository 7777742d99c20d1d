"""How a rank comes back in mid-run: without a process group, which nobody can join later, to what was put down."""

from __future__ import annotations

from testbed.core.errors import Left
from testbed.worker.comm import Communicator
from testbed.worker.meeting import Meeting


def come_back(
    *, rank: int, world_size: int, address: str, port: int, timeout_s: float, store: str = ""
) -> Communicator:
    """A communicator for a strategy that outlives this rank; arguments as of `Communicator.connect`.

    Raises:
        Left: the others are gone.
    """
    comm = Communicator(rank, world_size, timeout_s)
    comm.address, comm.is_back = address, True
    try:
        comm.meeting = Meeting(rank, 0, address=address, port=port, store=store, timeout_s=timeout_s)
    except (RuntimeError, OSError) as error:
        raise Left(f"rank {rank}: came back, and nobody is at {store or f'{address}:{port}'}: {error}") from error
    return comm
