"""One rank of a group that reduces a tensor again and again: `rank.py RANK RANKS ADDRESS BYTES CALLS`.

Rank 0 prints the seconds of each call.
"""

from __future__ import annotations

import json
import sys
import time

import torch

from testbed.worker.communication.communicator import Communicator

_PORT = 29_500
_TIMEOUT_S = 90.0


def main() -> None:
    rank, ranks, address, size_bytes, calls = (
        int(sys.argv[1]),
        int(sys.argv[2]),
        sys.argv[3],
        int(sys.argv[4]),
        int(sys.argv[5]),
    )
    torch.set_num_threads(1)
    comm = Communicator.connect(
        rank=rank, world_size=ranks, address=address, port=_PORT, interface="eth0", timeout_s=_TIMEOUT_S
    )
    tensor = torch.ones(size_bytes // 4)
    times = []
    for _ in range(calls):
        comm.barrier()
        started_s = time.monotonic()
        comm.all_reduce(tensor).wait()
        times.append(time.monotonic() - started_s)
        tensor.fill_(1)
    comm.close()
    if rank == 0:
        sys.stdout.write(json.dumps(times) + "\n")


if __name__ == "__main__":
    main()
