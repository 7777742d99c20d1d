"""What the asynchronous strategy refuses before a run, and what it is where nothing is sent."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from compressors.none import Uncompressed
from compressors.powersgd import PowerSGD
from compressors.sz3 import SZ3
from compressors.topk import TopK
from testbed.core.errors import InputError
from testbed.core.spec.run_spec import Part, RunSpec
from testbed.core.spec.schedule import Change
from testbed.worker.strategies.fedbuff import FedBuff
from testbed.worker.training.parts import build_parts
from testbed.worker.workloads.digits import Digits
from tests.unit.worker.strategies.test_parameter_server import Odd
from topologies import lan


def _faults(strategy: FedBuff, compressor: Any = None, workload: Any = None, workers: int = 4) -> list[str]:
    return list(strategy.validate(compressor or Uncompressed(), workload or Digits(), workers))


def test_what_no_asynchronous_server_can_do_is_refused_by_its_name() -> None:
    for method in ("scaffold", "feddyn", "fednova"):
        with pytest.raises(ValueError, match=f"method={method}: unknown; known: fedavg, fedprox"):
            FedBuff(method=method)
    with pytest.raises(ValueError, match=r"(?s)clients=0.*speeds\[1\]=2.*straggler_sigma=-1"):
        FedBuff(clients=0, straggler_sigma=-1, speeds=[1, 2])
    with pytest.raises(ValueError, match=r"uplink\.payload") as caught:
        FedBuff(uplink={"payload": "params"}, downlink={"codec": "topk"})
    assert "uplink.payload=params: must be delta" in str(caught.value)
    assert "downlink.codec=" in str(caught.value)
    with pytest.raises(ValueError, match=r"downlink\.payload: unknown; known: codec"):
        FedBuff(downlink={"payload": "delta"})
    with pytest.raises(ValueError, match=r"(?s)size=0.*exponent=-1"):
        FedBuff(size=0, exponent=-1)
    with pytest.raises(ValueError, match="momentum"):
        FedBuff(server={"momentum": 0.9})  # fedavg has none
    assert FedBuff(method="fedavgm", server={"momentum": 0.9}).name == "fedbuff"


def test_codecs_that_go_by_bounds_are_refused_and_others_are_not() -> None:
    for strategy, compressor in ((FedBuff(), SZ3()), (FedBuff(uplink={"codec": "int8_zstd"}), None)):
        (fault,) = _faults(strategy, compressor)
        assert fault.startswith("strategy=fedbuff strategy.uplink.codec=") and "bounds follow rounds" in fault
    (fault,) = _faults(FedBuff(), PowerSGD())
    assert "strategy=fedbuff strategy.uplink.codec=PowerSGD: works among all ranks" in fault
    for codec in ("fp16", "zstd", "raw", "qsgd", "topk"):
        assert not _faults(FedBuff(uplink={"codec": codec}))
    assert not _faults(FedBuff(downlink={"codec": "zstd"}), TopK())


def test_workers_clients_and_samples_must_fit() -> None:
    assert "workers=2 or more" in _faults(FedBuff(), workers=1)[0]
    (fault,) = _faults(FedBuff(clients=2))
    assert "strategy.clients=2: 3 workers run one each" in fault
    (fault,) = _faults(FedBuff(speeds=[1, 1]))
    assert "strategy.speeds: 2 for 3 workers" in fault
    (fault,) = _faults(FedBuff(clients=2000))
    assert "strategy.clients=2000: there are 1437 samples" in fault
    told = "\n".join(_faults(FedBuff(), workload=Odd()))
    assert "Odd has no samples that could be divided" in told and "spectrum: is of torch.complex64" in told


def _spec(**given: Any) -> RunSpec:
    return RunSpec(
        topology=lan.build(workers=4),
        workload=Part("digits", "testbed.worker.workloads.digits.Digits", {}),
        strategy=Part("fedbuff", "testbed.worker.strategies.fedbuff.FedBuff", {}),
        compressor=Part("none", "compressors.none.Uncompressed", {}),
        device=Part("native", "testbed.core.device.Native", {}),
        **({"steps": 4} | given),
    )


def test_workers_may_crash_and_join_and_the_server_may_not() -> None:
    spec = _spec()
    parts = build_parts(spec)
    assert [parts.strategy.tolerates_loss_of(rank) for rank in range(4)] == [False, True, True, True]
    assert [parts.strategy.part(rank, 4) for rank in range(4)] == [None] * 4
    names = [node.name for node in spec.topology.nodes]
    events = tuple(Change(t_s=t_s, kind=kind, node=names[2]) for t_s, kind in ((1, "crash"), (2, "join")))
    build_parts(dataclasses.replace(spec, events=events))
    with pytest.raises(InputError, match="which serves, crashes at 1 s"):
        build_parts(dataclasses.replace(spec, events=(Change(t_s=1, kind="crash", node=names[0]),)))
