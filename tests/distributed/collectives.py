"""One rank of the communicator's test: prints what it got as one JSON object.

Arguments: rank, world size, port, folder of the sockets at which ranks meet ("" for the port), connections to each
peer, milliseconds that the host takes to start a collective, and "staged", where all that is sent and received goes by
way of other memory, as from an accelerator.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable

import torch

from testbed.core.device.host_costs import HostCosts
from testbed.worker.communication.communicator import Communicator
from testbed.worker.communication.connections import Connections
from testbed.worker.communication.host import Done, Host
from testbed.worker.device.accelerator import Accelerator
from tests.distributed.carried import carried_bytes
from tests.distributed.harness import TIMEOUT_S

LARGE_BYTES = 6 << 20


class Counting(Accelerator):
    """An accelerator that counts the bytes that were put back."""

    back_bytes = 0

    def back(self, tensor: torch.Tensor, arrived: torch.Tensor) -> torch.Tensor:
        """Return the tensor with what has arrived."""
        self.back_bytes += 0 if arrived is tensor else tensor.nbytes
        return super().back(tensor, arrived)


class CountingHost(Host):
    """Counts the collectives that it starts."""

    starts = 0

    def starting(self, work: Callable[[], Done], share: float = 1.0) -> Callable[[], Done]:
        self.starts += 1
        return super().starting(work, share)


rank, world_size, port = map(int, sys.argv[1:4])
folder, connections, host_ms = sys.argv[4], int(sys.argv[5]), int(sys.argv[6])
comm = Communicator.connect(
    rank=rank,
    world_size=world_size,
    address="127.0.0.1",
    port=port,
    interface="lo",
    timeout_s=TIMEOUT_S,
    service=f"{folder}/{rank}.meet" if folder else "",
    accelerator=(accelerator := Counting(stages=sys.argv[7] == "staged")),
    connections=Connections(connections, least_bytes=1),
)
comm.host = host = CountingHost(HostCosts(collective_s=host_ms / 1e3))


def payload(size: int) -> torch.Tensor:
    return torch.full((size,), rank + 1, dtype=torch.uint8)


got: dict[str, object] = {}
sent: dict[str, int] = {}
put_back: dict[str, int] = {}


def note(name: str, tensors: list[torch.Tensor]) -> None:
    got[name] = [tensor.tolist() for tensor in tensors]
    sent[name], comm.payload_bytes = comm.payload_bytes, 0
    put_back[name], accelerator.back_bytes = accelerator.back_bytes, 0


began_s = time.monotonic()
note("sum", comm.all_reduce(torch.arange(5.0) * (rank + 1)).wait())
got["first_s"] = time.monotonic() - began_s
note("max", comm.all_reduce(torch.tensor([float(rank), -float(rank)]), op="max").wait())
note("half", comm.all_reduce(torch.ones(4, dtype=torch.float16)).wait())
note("even", comm.all_gather(payload(3), [3] * world_size).wait())
note("uneven", comm.all_gather(payload(rank), list(range(world_size))).wait())
note("empty", comm.all_gather(payload(0), [0] * world_size).wait())
parts = [payload(to + 1) for to in range(world_size)]
note("all_to_all", comm.all_to_all(parts, [rank + 1] * world_size).wait())
note("sizes", comm.exchange_sizes([10 * rank + to for to in range(world_size)]).wait())
note("broadcast", comm.broadcast(torch.tensor([float(rank)]), source=1).wait())
# many under way at once, waited for in another order
pending = [comm.all_reduce(torch.full((1000,), float(index))) for index in range(6)]
note("many", [p.wait()[0][:1] for p in reversed(pending)])
receiving = comm.receive(torch.empty(2, dtype=torch.uint8), source=(rank - 1) % world_size)
comm.send(payload(2), to=(rank + 1) % world_size).wait()
note("ring", receiving.wait())
try:
    comm.require_equal(rank // 2, "the half")
except Exception as error:
    got["unequal"] = str(error)
comm.require_equal(7, "seven")
got["control_bytes"] = comm.control_bytes
before = carried_bytes()
receiving = comm.receive(torch.empty(LARGE_BYTES, dtype=torch.uint8), source=(rank - 1) % world_size)
comm.send(payload(LARGE_BYTES), to=(rank + 1) % world_size).wait()
got["large"] = sorted({*receiving.wait()[0].tolist()[:: 1 << 16]})
comm.barrier()
got["carried"] = [size - before.get(place, 0) for place, size in carried_bytes().items()]
got["seconds"], got["starts"] = comm.stopwatch.take_s(), host.starts
comm.close()
sys.stdout.write(json.dumps({"got": got, "sent": sent, "put_back": put_back}))
