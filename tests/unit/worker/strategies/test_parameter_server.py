"""What the strategy refuses before a run, and how a server and its clients meet."""

from __future__ import annotations

import dataclasses
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch
from torch import nn

from compressors.none import Uncompressed
from testbed.core.errors import InputError, Left, RunError
from testbed.core.spec.run_spec import Part, RunSpec
from testbed.core.spec.schedule import Change
from testbed.core.spec.topology import Topology
from testbed.worker.communication.rendezvous import Rendezvous
from testbed.worker.device.clock import PhaseClock
from testbed.worker.interfaces.strategy import WorkerContext
from testbed.worker.interfaces.workload import Workload, parameters_crc32
from testbed.worker.methods.parameter_server.bounds.adaptive import AdaptiveBound
from testbed.worker.methods.parameter_server.bounds.baselines import Fixed
from testbed.worker.methods.parameter_server.bounds.error_bounds import RANGE, UPDATE
from testbed.worker.methods.parameter_server.membership.admission import invite
from testbed.worker.methods.parameter_server.messages.schema import Schema
from testbed.worker.methods.parameter_server.messages.wire import Wire
from testbed.worker.reduction.rehearsal import Echo
from testbed.worker.strategies.parameter_server import ParameterServer
from testbed.worker.training.parts import build_parts
from testbed.worker.workloads.digits import Digits
from tests.unit.worker.server_models import net, plan_up
from topologies import lan, two_regions

PROBING: dict[str, Any] = {"downlink": {"codec": "sz3"}}


class Odd(Workload):
    """Has no samples that it could hold out, and a buffer that cannot travel."""

    metric = None

    def model(self, seed: int) -> nn.Module:
        model = nn.Linear(2, 2)
        model.register_buffer("spectrum", torch.zeros(2, dtype=torch.complex64))
        return model

    optimizer = samples = batch = loss = evaluate = Digits.optimizer  # type: ignore[assignment]


def _faults(strategy: ParameterServer, workload: Workload) -> list[str]:
    return list(strategy.validate(Uncompressed(), workload, 3))


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ({}, AdaptiveBound),
        ({"uplink": {"payload": "grad"}}, AdaptiveBound),
        ({"uplink": {"payload": "params"}, "downlink": {"payload": "params"}}, Fixed),
        ({"downlink": {"payload": "params"}}, Fixed),
        ({"uplink": {"payload": "params"}, "bound": AdaptiveBound()}, AdaptiveBound),
    ],
)
def test_the_usual_bound_is_fixed_where_parameters_travel(asked: dict[str, Any], expected: type) -> None:
    schedule = ParameterServer(**asked).schedule
    assert type(schedule) is expected
    if isinstance(schedule, Fixed):
        assert (schedule.alpha, schedule.basis) == (0.01, RANGE)


def test_what_cannot_be_served_is_refused_before_the_run() -> None:
    assert not _faults(ParameterServer(**PROBING), Digits())
    told = "\n".join(_faults(ParameterServer(**PROBING, uplink={"codec": "powersgd"}), Odd()))
    assert "strategy=parameter_server strategy.uplink.codec=PowerSGD: works among all ranks" in told
    assert "strategy.bound: AdaptiveBound tries models on samples that are held out, of which Odd has none" in told
    assert "strategy=parameter_server: Odd: spectrum: is of torch.complex64" in told
    assert "held out" not in "\n".join(_faults(ParameterServer(), Odd())), "nothing goes by bounds"


def test_importance_is_refused_of_ranges_beside_all_else() -> None:
    up = {"codec": "sz3", "importance": True}
    assert not _faults(ParameterServer(uplink=up), Digits())
    assert not _faults(ParameterServer(uplink=up, bound=Fixed(basis=UPDATE)), Digits())
    (told,) = _faults(ParameterServer(uplink=up, bound=Fixed(basis=RANGE)), Digits())
    assert "strategy.uplink.importance=True: bounds of Fixed are shares of each tensor's range" in told
    assert not _faults(ParameterServer(uplink={"codec": "sz3"}, bound=Fixed(basis=RANGE)), Digits())
    both = {"uplink": up | {"codec": "raw"}, "downlink": {"importance": True}}
    told = "\n".join(_faults(ParameterServer(**both, bound=Fixed(basis=RANGE)), Digits()))
    assert "strategy.uplink.importance=True: codec=raw does not go by bounds" in told
    assert "strategy.downlink.importance=True: the server has no gradients" in told
    assert "strategy.uplink.importance=True: bounds of Fixed" in told


def _spec(**given: Any) -> RunSpec:
    return RunSpec(
        topology=lan.build(workers=4),
        workload=Part("digits", "testbed.worker.workloads.digits.Digits", {}),
        strategy=Part("parameter_server", "testbed.worker.strategies.parameter_server.ParameterServer", {}),
        compressor=Part("none", "compressors.none.Uncompressed", {}),
        device=Part("native", "testbed.core.device.Native", {}),
        **({"steps": 4} | given if "epochs" not in given else given),
    )


def test_an_epoch_is_over_when_the_clients_have_seen_all_samples() -> None:
    spec = _spec(epochs=2, batch_size=32)
    assert build_parts(spec).steps(spec) == 30  # of 3 clients: 2 * 1437 / 96


def _in_regions(topology: Topology, **given: Any) -> RunSpec:
    params = {"region_servers": True}
    server = Part("parameter_server", "testbed.worker.strategies.parameter_server.ParameterServer", params)
    return dataclasses.replace(_spec(), topology=topology, strategy=server, **given)


def test_servers_of_regions_are_refused_where_there_is_nothing_to_serve_and_beside_a_gate() -> None:
    for network in (lan.build(workers=4), two_regions.build(workers=3)):
        with pytest.raises(InputError, match=r"region_servers=true: no region but that of rank 0 has two workers"):
            build_parts(_in_regions(network))
    with pytest.raises(
        ValueError, match=r"(?s)region_servers=True gate: a gate learns.*region_servers=True checkpoint"
    ):
        ParameterServer(region_servers=True, gate=True, checkpoint=True)
    assert not ParameterServer(gate=True).region_servers
    with pytest.raises(RunError, match="it was not told where ranks are"):
        ParameterServer(region_servers=True).part(1, 4)


def test_whoever_serves_a_region_has_no_data_and_is_not_taken_back() -> None:
    network = two_regions.build(workers=5)  # three, and two
    spec = _in_regions(network, steps=None, epochs=2)
    parts = build_parts(spec)
    assert [parts.strategy.part(rank, 5) for rank in range(5)] == [None, (0, 3), (1, 3), None, (2, 3)]
    assert parts.steps(spec) == 30  # of 3 clients: 2 * 1437 / 96
    assert [parts.strategy.tolerates_loss_of(rank) for rank in range(5)] == [False, True, True, True, True]
    names = [node.name for node in network.nodes]
    events = [Change(t_s=t_s, kind=kind, node=name) for name in names[2:] for t_s, kind in ((1, "crash"), (2, "join"))]
    with pytest.raises(InputError) as caught:
        build_parts(dataclasses.replace(spec, events=tuple(events)))
    (fault,) = caught.value.faults
    assert fault.startswith(f"events: {names[3]} cannot join at 2 s: ") and "does not take it in again" in fault


def test_a_server_of_a_region_that_comes_back_has_nobody_to_serve() -> None:
    comm = _Unanswered(3, 5, 1.0)
    comm.is_back = True
    spec = _in_regions(two_regions.build(workers=5))
    strategy = ParameterServer(region_servers=True)
    with pytest.raises(Left, match="rank 3: came back, but its clients, whose server it was, left"):
        strategy.bind(_context(spec, comm))
    with pytest.raises(InputError, match="no region but that of rank 0"):
        ParameterServer(region_servers=True).bind(_context(_spec(steps=4), _Unanswered(1, 4, 1.0)))


class _Unanswered(Echo):
    networked = True
    address = "127.0.0.1"
    rendezvous = cast(Rendezvous, SimpleNamespace(put=lambda name, value: None))


def _context(spec: RunSpec, comm: Echo) -> WorkerContext:
    parts = build_parts(spec)
    model = parts.workload.model(0)
    return WorkerContext(
        spec=spec,
        workload=parts.workload,
        model=model,
        optimizer=parts.workload.optimizer(model.parameters()),
        compressor=Uncompressed(),
        comm=comm,
        clock=PhaseClock(),
    )


@pytest.fixture
def _told_to_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Echo, "broadcast", lambda self, tensor, **given: self._done([tensor]), raising=False)


def test_where_nothing_is_sent_a_step_is_one_of_plain_training_whatever_compresses() -> None:
    """As times are measured, with a compressor that stands for the run's."""
    strategy = ParameterServer(uplink={"dither": True, "codec": "compressor"}, **PROBING)
    context = _context(_spec(steps=4), Echo(0, 4, 1.0))
    strategy.bind(context)
    workload, model = Digits(), Digits().model(0)
    optimizer = workload.optimizer(model.parameters())
    for step in range(2):
        batch = workload.batch(step, rank=0, world_size=1, batch_size=8, seed=0)
        optimizer.zero_grad()
        loss = workload.loss(model, batch)
        loss.backward()
        optimizer.step()
        assert strategy.step(batch, step).loss == float(loss.detach())
    strategy.finish()
    assert parameters_crc32(model) == parameters_crc32(context.model)


@pytest.mark.usefixtures("_told_to_nobody")
def test_clients_that_do_not_come_are_named() -> None:
    comm = _Unanswered(0, 3, 1.0)
    schema, plan = Schema.of(net()), plan_up(codec="raw")
    with pytest.raises(RunError, match="the server waited 0 s of wall time for rank 1, 2, which did not come"):
        invite(comm, lambda key: Wire(schema, key, plan, plan, clients=2, seed=0), 0.0)[1].let_all_in(0.0)
    assert comm.payload_bytes == 0


@pytest.mark.usefixtures("_told_to_nobody")
@pytest.mark.parametrize("rank", [0, 1])
def test_more_samples_than_there_are_cannot_be_held_out_and_no_address_is_an_error(rank: int) -> None:
    """Who trains on the rest has to hold them out as well."""
    strategy = ParameterServer(probe_samples=5000, **PROBING)
    comm = _Unanswered(rank, 4, 1.0)
    with pytest.raises(InputError, match=r"strategy.probe_samples=5000: 5000 samples cannot be held out of 1437"):
        strategy.bind(_context(_spec(steps=4), comm))
    comm.address = ""
    with pytest.raises(RunError, match="rank 0 has no address"):
        strategy.bind(_context(_spec(steps=4), comm))
