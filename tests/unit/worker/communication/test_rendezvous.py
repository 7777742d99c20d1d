"""What ranks put down where they meet is there for one that comes later; where nobody is, it leaves."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from testbed.core.errors import Left
from testbed.core.record.telemetry import Welcome
from testbed.orchestrator.config.config import resolve
from testbed.orchestrator.emulation.containers.rendezvous_service import RendezvousService
from testbed.orchestrator.run.workers.listeners import WorkerListeners
from testbed.worker.communication.communicator import Communicator
from testbed.worker.communication.rendezvous import Rendezvous, ServiceStore
from testbed.worker.device.accelerator import Accelerator
from testbed.worker.methods.parameter_server.membership.admission import come
from testbed.worker.methods.parameter_server.messages.schema import Schema
from testbed.worker.methods.parameter_server.messages.wire import Wire
from testbed.worker.process.session import come_back, connected
from tests.distributed.harness import port_of_ones_own
from tests.unit.worker.server_models import net, plan_up
from tests.waiting import HANG_S


@pytest.fixture
def service() -> Iterator[str]:
    """Path of the socket of one node at a run's service."""
    listeners = WorkerListeners(RendezvousService(3).serve)
    with tempfile.TemporaryDirectory() as name:  # a Unix socket's path holds 107 bytes
        try:
            listeners.open_for("a", Path(name) / "meet")
            yield str(Path(name) / "meet")
        finally:
            listeners.close()


@pytest.mark.parametrize("at_the_service", [True, False])
def test_who_comes_back_finds_what_was_put_down_last(at_the_service: bool, service: str) -> None:
    with port_of_ones_own() as port:
        where = service if at_the_service else ""
        server = Communicator(0, 3, HANG_S)
        server.rendezvous = Rendezvous(0, 1, address="127.0.0.1", port=port, store="", timeout_s=HANG_S, service=where)
        for told in (b"", bytes(range(34))):
            server.rendezvous.put("here", told)
        for rank in (1, 2, 2):
            comm = come_back(rank=rank, world_size=3, address="127.0.0.1", port=port, timeout_s=HANG_S, service=where)
            assert (comm.rank, comm.world_size, comm.is_back) == (rank, 3, True)
            assert comm.rendezvous is not None and comm.rendezvous.get("here") == bytes(range(34))
            comm.close(together=False)
            _leave(comm)
        _leave(server)


def test_a_rank_that_comes_back_is_as_one_that_began(service: str) -> None:
    spec, accelerator = resolve(["strategy=federated", "workers=2", "workload=digits"]).spec, Accelerator()
    welcome = Welcome(
        rank=1, world_size=2, master_address="", master_port=0, interface="lo", folder="", spec={}, rendezvous=service,
        is_back=True,
    )  # fmt: skip
    comm = connected(spec, welcome, accelerator)
    assert (comm.rank, comm.world_size, comm.is_back, comm.accelerator) == (1, 2, True, accelerator)
    _leave(comm)


def test_where_nobody_is_it_leaves(service: str) -> None:
    with port_of_ones_own() as port, pytest.raises(Left, match="rank 1: rejoined, and no server is at"):
        come_back(rank=1, world_size=2, address="127.0.0.1", port=port, timeout_s=0.1)
    comm = come_back(rank=1, world_size=2, address="", port=0, timeout_s=0.1, service=service)
    schema, plan = Schema.of(net()), plan_up(codec="raw")
    with pytest.raises(Left, match="rank 1: came back, and found no server"):
        come(comm, lambda key: Wire(schema, key, plan, plan, clients=1, seed=0), HANG_S)
    _leave(comm)


def _leave(comm: Communicator) -> None:
    """Close what a process closes by its end."""
    if comm.rendezvous is not None and isinstance(comm.rendezvous.place, ServiceStore):
        comm.rendezvous.place.close()
