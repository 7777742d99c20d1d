"""What can be said of accelerators without one: who is refused, and that nothing of a step stays behind in the host's
memory. Torch's `meta` device stands for another one: it computes shapes alone, and refuses to mix with the host's."""

from __future__ import annotations

import json
from collections import namedtuple
from io import StringIO
from typing import Any

import pytest
import torch

from testbed.core.errors import EXIT_INPUT, MachineError
from testbed.orchestrator.config.config import resolve
from testbed.worker.device import clock as clock_module
from testbed.worker.device.accelerator import NCCL_BY_SOCKETS, Accelerator, build_faults, to_device
from testbed.worker.device.clock import PhaseClock
from testbed.worker.process.check import check
from testbed.worker.profile.step_times import batch_of
from testbed.worker.reduction.buckets import Buckets
from testbed.worker.reduction.fusion import grouped
from testbed.worker.training.parts import build_parts
from tests.unit.fake_time import FakeTime

META = torch.device("meta")
Pair = namedtuple("Pair", ["text", "asked_at"])


def test_a_rank_without_a_device_of_its_own_is_refused_with_what_there_is() -> None:
    with pytest.raises(MachineError, match=r"rank 4096 of this machine wants a device.*found \d+ devices"):
        Accelerator.of_rank("cuda", 4096)


def test_the_processor_has_gloo_nothing_to_settle_and_no_name() -> None:
    processor = Accelerator()
    processor.settle()
    assert processor.backend == "gloo" and processor.name is None
    assert Accelerator(torch.device("cuda", 1)).backend == "cpu:gloo,cuda:nccl"


def test_a_batch_goes_with_all_its_tensors_and_keeps_its_form() -> None:
    moved = to_device((Pair(torch.ones(2), [torch.ones(1)]), 7), META)
    assert isinstance(moved[0], Pair) and moved[1] == 7
    assert moved[0].text.device == moved[0].asked_at[0].device == META
    one = torch.ones(1)
    assert to_device(one, torch.device("cpu")) is one


@pytest.mark.parametrize("workload", ["digits", "blocks", "sensors", "bytelm"])
def test_a_step_of_a_workload_mixes_nothing_of_the_host_with_what_lies_on_the_device(workload: str) -> None:
    spec = resolve([f"workload={workload}", "topo=lan", "workers=2", "batch_size=4"]).spec
    built = build_parts(spec).workload
    model = built.model(0).to(META)
    buckets = Buckets(grouped(model.parameters(), 1 << 20), lambda bucket: None)
    buckets.reset()
    built.loss(model, to_device(batch_of(built, spec), META)).backward()
    buckets.flush()
    assert {bucket.flat.device for bucket in buckets.buckets} == {META}
    with pytest.raises(RuntimeError, match="device"):
        built.loss(model, batch_of(built, spec))


def asked(*words: str, workload: str = "digits", accelerated: bool = True) -> list[str]:
    spec = resolve([f"workload={workload}", "topo=lan", "workers=2", *words]).spec
    told = StringIO()
    status = check(StringIO(json.dumps({**spec.to_json(), "accelerated": accelerated})), told)
    faults: list[str] = json.loads(told.getvalue())["faults"]
    assert (status == EXIT_INPUT) == bool(faults)
    return faults


@pytest.mark.skipif(torch.backends.cuda.is_built(), reason="this build of torch has CUDA")
def test_a_run_on_devices_asks_the_same_and_for_a_build_of_torch_with_them() -> None:
    words = ("accelerator=cuda", "strategy=dear", "transform=pufferfish")
    misfits = asked(*words, accelerated=False)
    assert [fault.partition(" ")[0] for fault in misfits] == ["accelerator=cuda:"] * 2 and "DeAR" in misfits[0]
    (build,) = build_faults("cuda")
    assert build.endswith("is built without CUDA; install a build with it") and list(build_faults("none")) == []


def test_what_is_copied_to_the_host_may_be_sent_by_any_collective() -> None:
    words = ("strategy.collective=hierarchical",)
    assert asked(*words, "accelerator=cuda", accelerated=False) == []
    (fault,) = asked(*words, "accelerator=cuda_nccl", accelerated=False)
    assert fault.startswith("accelerator=cuda_nccl: strategy.collective=hierarchical: sends tagged messages")
    (fault,) = asked(*words, "strategy.compress=wan", "accelerator=cuda", accelerated=False)
    assert fault.startswith("accelerator=cuda: DDP: strategy.compress=wan")


def test_sending_that_was_not_tried_with_devices_is_refused_with_the_reason() -> None:
    words = ("device=paced", "device.step_s=0.1", "device.host_s={collective: 7 ms}")
    assert asked(*words, "connections=2", "accelerator=cuda", accelerated=False) == [
        "accelerator=cuda: device.host_s: was not tried with copies to the host's memory; leave it out"
    ]
    connections, host = asked(*words, "connections=2", "accelerator=cuda_nccl", accelerated=False)
    assert "connections=2: NCCL has connections of its own" in connections and "device.host_s: NCCL sends" in host


def test_buckets_by_times_are_refused_where_the_device_is_timed_only_as_it_computes() -> None:
    words = ("strategy.fusion=mg_wfbp", "accelerator=cuda")
    (fault,) = asked(*words, accelerated=False)
    assert fault.startswith("accelerator=cuda: strategy.fusion=mg_wfbp: needs times") and "device=paced" in fault
    assert asked(*words, "device=paced", "device.step_s=0.1", accelerated=False) == []
    assert asked("strategy.fusion=mg_wfbp", accelerated=False) == [], "the processor is measured before"


def test_a_node_without_its_device_is_refused() -> None:
    if torch.cuda.device_count() != 1:
        with pytest.raises(MachineError, match=r"accelerator=cuda: this node was given one device, and torch .* finds"):
            Accelerator.of_node("cuda")


def test_nccl_is_kept_to_the_nodes_interface() -> None:
    beside = ("NCCL_P2P_DISABLE", "NCCL_SHM_DISABLE", "NCCL_IB_DISABLE")
    assert {NCCL_BY_SOCKETS[name] for name in beside} == {"1"} and NCCL_BY_SOCKETS["NCCL_NET"] == "Socket"


@pytest.mark.parametrize("strategy", ["ddp", "torch_ddp", "lamb", "diloco", "local_sgd", "streaming_diloco"])
def test_strategies_that_send_by_torchs_own_collectives_are_taken(strategy: str) -> None:
    assert asked(f"strategy={strategy}") == []


def test_all_that_an_accelerator_cannot_train_is_told_at_once() -> None:
    found = "\n".join(asked("strategy.collective=ring", "transform=pufferfish"))
    assert "strategy.collective=ring: sends tagged messages" in found and "transforms change the model" in found
    (fault,) = asked("strategy=diloco", "strategy.replicas=region")
    assert "strategy.replicas=region" in fault
    (fault,) = asked("strategy=dear")
    assert fault.startswith("--accelerator: DeAR: computes or sends in the host's memory")
    (fault,) = asked("workload.model=resnet18", "device=paced", "device.step_s=0.1", workload="replay")
    assert "does no arithmetic" in fault


def test_a_phase_is_not_over_before_what_it_began_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    time: Any = FakeTime()
    monkeypatch.setattr(clock_module, "time", time)
    clock = PhaseClock(settle=lambda: time.sleep(0.25))
    with clock.phase("forward"):
        time.sleep(0.5)
    with clock.phase("exposed_communication"):
        time.sleep(1.0)
    assert clock.take() == pytest.approx({"forward": 0.75, "exposed_communication": 1.25})
