"""The communicator over real gloo: what arrives, and what is counted."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import pytest

from testbed.orchestrator.emulation.containers.rendezvous_service import RendezvousService
from testbed.orchestrator.run.workers.listeners import WorkerListeners
from tests.distributed.forked import Forked
from tests.distributed.harness import ROOT, TIMEOUT_S, outputs, port_of_ones_own

P = 3
LARGE_BYTES = 6 << 20
HOST_MS = 20
AT_SERVICE = 3, 0, "in place"
"""The case whose ranks meet at the service of an emulated run."""


@pytest.fixture(
    scope="module",
    params=[(1, 0, "in place"), (1, 0, "staged"), AT_SERVICE, (3, HOST_MS, "staged")],
    ids=["plain", "staged", "three connections by the run's service", "three staged with a host"],
)
def asked(request: pytest.FixtureRequest) -> tuple[int, int, str]:
    connections, host_ms, memory = request.param
    return connections, host_ms, memory


@pytest.fixture(scope="module")
def ranks(asked: tuple[int, int, str]) -> list[dict[str, Any]]:
    script = Path(__file__).with_name("collectives.py")
    with port_of_ones_own() as port, _service() if asked == AT_SERVICE else nullcontext("") as folder:
        tail = [str(P), str(port), folder, *map(str, asked)]
        workers = [
            Forked(script, [str(rank), *tail], environment={"PYTHONPATH": str(ROOT)}, cwd=ROOT) for rank in range(P)
        ]
        return [json.loads(out) for out in outputs(workers)]


@contextmanager
def _service() -> Iterator[str]:
    """Have the rendezvous of an emulated run, and yield the folder with the socket of each rank."""
    listeners = WorkerListeners(RendezvousService(P).serve)
    with tempfile.TemporaryDirectory() as folder:
        for rank in range(P):
            listeners.open_for(str(rank), Path(folder, f"{rank}.meet"))
        try:
            yield folder
        finally:
            listeners.close()


def _got(ranks: list[dict[str, Any]], name: str) -> list[Any]:
    return [answer["got"][name] for answer in ranks]


def test_reductions(ranks: list[dict[str, Any]]) -> None:
    assert _got(ranks, "sum") == [[[0, 6, 12, 18, 24]]] * P
    assert _got(ranks, "max") == [[[2, 0]]] * P
    assert _got(ranks, "half") == [[[3, 3, 3, 3]]] * P
    assert _got(ranks, "many") == [[[3.0 * index] for index in reversed(range(6))]] * P


def test_gathers_of_equal_and_unequal_sizes(ranks: list[dict[str, Any]]) -> None:
    assert _got(ranks, "even") == [[[1, 1, 1], [2, 2, 2], [3, 3, 3]]] * P
    assert _got(ranks, "uneven") == [[[], [2], [3, 3]]] * P
    assert _got(ranks, "empty") == [[[], [], []]] * P


def test_point_to_point_and_all_to_all(ranks: list[dict[str, Any]]) -> None:
    assert _got(ranks, "all_to_all") == [[[source + 1] * (rank + 1) for source in range(P)] for rank in range(P)]
    assert _got(ranks, "sizes") == [[[10 * source + rank for source in range(P)]] for rank in range(P)]
    assert _got(ranks, "broadcast") == [[[1.0]]] * P
    assert _got(ranks, "ring") == [[[(rank - 1) % P + 1] * 2] for rank in range(P)]


def test_bytes_over_all_ranks_are_the_closed_forms(ranks: list[dict[str, Any]]) -> None:
    sent = {name: sum(answer["sent"][name] for answer in ranks) for name in ranks[0]["sent"]}
    assert sent["sum"] == 2 * (P - 1) * 5 * 4
    assert sent["half"] == 2 * (P - 1) * 4 * 2
    assert sent["even"] == P * (P - 1) * 3
    assert sent["uneven"] == P * (P - 1) * 2  # padded to the longest
    assert sent["all_to_all"] == (P - 1) * (1 + 2 + 3)
    assert sent["broadcast"] == (P - 1) * 4
    assert sent["ring"] == P * 2
    assert sent["sizes"] == 0
    assert max(answer["got"]["control_bytes"] for answer in ranks) == 3 * 8 * (P - 1)


def test_what_arrives_is_put_back_once(ranks: list[dict[str, Any]], asked: tuple[int, int, str]) -> None:
    is_staged = asked[2] == "staged"
    for rank, answer in enumerate(ranks):
        arrived = {"sum": 20, "even": 3 * P, "uneven": 2 * P, "all_to_all": P * (rank + 1), "broadcast": 4, "ring": 2}
        assert {name: answer["put_back"][name] for name in arrived} == {
            name: size_bytes * is_staged for name, size_bytes in arrived.items()
        }


def test_the_host_starts_each_collective_and_no_control_message(
    ranks: list[dict[str, Any]], asked: tuple[int, int, str]
) -> None:
    """Sum, maximum, half, three gathers, one to all, one broadcast, and six under way at once, which wait in turn."""
    for answer in ranks:
        assert answer["got"]["starts"] == (14 if asked[1] else 0)
        assert answer["got"]["first_s"] >= asked[1] / 1e3
        assert answer["got"]["seconds"] >= 14 * asked[1] / 1e3


def test_a_message_is_shared_among_all_connections(ranks: list[dict[str, Any]], asked: tuple[int, int, str]) -> None:
    connections = asked[0]
    large = LARGE_BYTES / connections
    for rank, answer in enumerate(ranks):
        assert answer["got"]["large"] == [(rank - 1) % P + 1]
        assert [size for size in answer["got"]["carried"] if size > large / 2] == [
            pytest.approx(large, rel=1e-3) for _ in range(connections)
        ]


def test_differing_values_are_named(ranks: list[dict[str, Any]]) -> None:
    assert _got(ranks, "unequal") == [
        "rank 0: the half differs from that of rank 2",
        "rank 1: the half differs from that of rank 2",
        "rank 2: the half differs from that of rank 0, 1",
    ]


def test_time_under_way_is_measured(ranks: list[dict[str, Any]]) -> None:
    assert all(0 < seconds < TIMEOUT_S for seconds in _got(ranks, "seconds"))
