"""What ranks put down where they meet is there for one that comes later; where nobody is, it leaves."""

from __future__ import annotations

from pathlib import Path

import pytest

from testbed.core.errors import Left
from testbed.worker.comm import Communicator
from testbed.worker.meeting import Meeting
from testbed.worker.returning import come_back
from testbed.worker.server.door import look_up, put_down
from tests.distributed.harness import port_of_ones_own

KEY = bytes(range(32))


@pytest.mark.parametrize("in_file", [True, False])
def test_who_comes_back_finds_the_port_and_the_key(in_file: bool, tmp_path: Path) -> None:
    store = str(tmp_path / "ranks") if in_file else ""
    with port_of_ones_own() as port:
        place = {"address": "127.0.0.1", "port": port, "store": store, "timeout_s": 20.0}
        server = Communicator(0, 3, 20.0)
        server.meeting = Meeting(0, 1, **place)  # type: ignore[arg-type]
        for number in (1, 40_000):
            put_down(server, number, KEY)
        for rank in (1, 2, 2):
            comm = come_back(rank=rank, world_size=3, **place)  # type: ignore[arg-type]
            assert (comm.rank, comm.world_size, comm.is_back) == (rank, 3, True)
            assert look_up(comm) == (40_000, KEY)
            comm.close(together=False)


def test_where_nobody_is_it_leaves(tmp_path: Path) -> None:
    with port_of_ones_own() as port, pytest.raises(Left, match="rank 1: came back, and nobody is at"):
        come_back(rank=1, world_size=2, address="127.0.0.1", port=port, timeout_s=0.1)
    comm = come_back(rank=1, world_size=2, address="", port=0, timeout_s=0.1, store=str(tmp_path / "ranks"))
    with pytest.raises(Left, match="rank 1: came back, and found no server"):
        look_up(comm)
