"""One rank over an emulated link: prints the seconds of an all-reduce, and of a message, as JSON.

Arguments: rank, path of a file that ranks meet at, interface, connections to each peer, bytes.
"""

from __future__ import annotations

import json
import sys
import time

import torch

from testbed.worker.communication.communicator import Communicator
from testbed.worker.communication.connections import Connections

RANKS, TIMEOUT_S = 2, 120.0


def main() -> None:
    rank, connections, size_bytes = int(sys.argv[1]), int(sys.argv[4]), int(sys.argv[5])
    place = {"store": sys.argv[2], "interface": sys.argv[3], "address": "", "port": 0, "timeout_s": TIMEOUT_S}
    comm = Communicator.connect(rank=rank, world_size=RANKS, connections=Connections(connections), **place)
    tensor, found = torch.ones(size_bytes // 4), {}
    for warm in (True, False):
        comm.barrier()
        began_s = time.monotonic()
        comm.all_reduce(tensor).wait()
        found["all_reduce"] = time.monotonic() - began_s
        if warm:
            comm.payload_bytes = 0
    assert bool((tensor == RANKS**2).all()), "the sum is wrong"
    found["payload_bytes"] = comm.payload_bytes
    comm.barrier()
    began_s = time.monotonic()
    if rank == 0:
        comm.send(tensor, to=1).wait()
        comm.receive(torch.empty(1), source=1).wait()
    else:
        comm.receive(tensor, source=0).wait()
        comm.send(torch.ones(1), to=0).wait()
    found["message"] = time.monotonic() - began_s
    comm.close()
    sys.stdout.write(json.dumps(found) + "\n")


if __name__ == "__main__":
    main()
