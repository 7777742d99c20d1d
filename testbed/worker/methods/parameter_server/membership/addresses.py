"""Where the servers of regions listen, as they put it down at the meeting of all ranks."""

from __future__ import annotations

from testbed.core.errors import Left, RunError
from testbed.worker.communication.communicator import Communicator


def put_down(comm: Communicator, key: bytes, address: str, port: int) -> None:
    """Where this rank serves its region.

    Args:
        key: the run's. One that serves anew, after a change of the model, has another: nobody finds the old place.
    """
    assert comm.rendezvous is not None, "ranks that have connected have met"
    comm.rendezvous.put(_name(key, comm.rank), f"{address} {port}".encode())


def look_up(comm: Communicator, key: bytes, server: int) -> tuple[str, int]:
    """The address and port of rank `server`, once it has put them down.

    Raises:
        RunError: it has not in time; `Left`, where this rank has come back, and the others go on.
    """
    assert comm.rendezvous is not None, "who is a client has met the others, or is back at their meeting"
    try:
        address, port = comm.rendezvous.get(_name(key, server)).decode().split()
    except RuntimeError as error:
        kind = Left if comm.is_back else RunError
        raise kind(f"rank {comm.rank}: rank {server}, which serves its region, says not where: {error}") from error
    return address, int(port)


def _name(key: bytes, server: int) -> str:
    return f"region_server/{server}/{key.hex()[:16]}"
