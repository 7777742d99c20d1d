"""What is measured of a step before a run. Times are only held to be there and to add up: the machine is shared."""

from __future__ import annotations

import dataclasses
import io
import json
import math
import time

import pytest
import torch
from torch import nn

from compressors.none import Uncompressed
from testbed.analysis.simulator import predict_command
from testbed.core.device.profile import LayerTimes, Profile, TensorTimes
from testbed.core.errors import EXIT_COMPLETED, EXIT_INPUT, InputError
from testbed.core.spec.run_spec import Part, RunSpec
from testbed.worker.device.compute_times import ComputeTimes
from testbed.worker.profile.profile_command import calibrate, measured
from testbed.worker.profile.step_times import measure
from topologies import lan

_NATIVE = Part("native", "testbed.core.device.Native")


def spec(compressor: Part | None = None, device: Part = _NATIVE, workers: int = 3) -> RunSpec:
    return RunSpec(
        topology=lan.build(workers=workers),
        workload=Part("digits", "testbed.worker.workloads.digits.Digits"),
        strategy=Part("ddp", "testbed.worker.strategies.ddp.DDP", {"bucket_size": "2 MiB"}),
        compressor=compressor or Part("none", "compressors.none.Uncompressed"),
        device=device,
        steps=1,
        batch_size=8,
    )


@pytest.fixture(scope="module")
def cpu() -> Profile:
    return measure(spec())


def test_every_layer_with_parameters_takes_time_both_ways(cpu: Profile) -> None:
    with_parameters = [layer for layer in cpu.layers if layer.parameters]
    assert [layer.parameters for layer in with_parameters] == [320, 18_496, 656_000, 410_240, 6_410]
    assert all(layer.forward_s > 0 and layer.backward_s > 0 for layer in with_parameters)
    # 8 samples through 1024 x 640, two operations a weight
    assert with_parameters[2].forward_flop == 2 * 8 * 1024 * 640


def test_of_a_model_with_adapters_what_learns_is_measured_and_predicted() -> None:
    lora = Part("lora", "testbed.worker.transforms.lora.LoRA", {"rank": 4, "train": ["10"]})
    asked = dataclasses.replace(spec(), transform=lora)
    found = measure(asked)
    adapters = {"0": 9 + 32, "2": 288 + 64, "6": 1024 + 640, "8": 1280}
    learning = {f"{name}.{side}" for name in adapters for side in ("down", "up")} | {"10"}
    assert {layer.name for layer in found.layers if layer.parameters} == learning
    count = 4 * sum(adapters.values()) + 6410
    assert sum(layer.parameters for layer in found.layers) == sum(found.buckets) == count
    assert all(layer.backward_s == 0 for layer in found.layers if layer.name.endswith(".base"))
    assert found.switched == dataclasses.replace(found, switched=None)
    question = {"spec": asked.to_json(), "cpu": found.to_json(), "device": found.to_json()}
    assert predict_command.answer(json.loads(json.dumps(question))).plan.parameters == count


def test_the_parts_of_a_step_add_up(cpu: Profile) -> None:
    assert cpu.forward_s > 0
    assert cpu.backward_s > 0
    assert cpu.optimizer_s > 0
    assert cpu.cpu_step_s == pytest.approx(cpu.step_s)  # each bucket has a size of its own here
    assert 0.3 < sum(layer.forward_s for layer in cpu.layers) / cpu.forward_s < 3


def test_collectives_are_those_of_a_step(cpu: Profile) -> None:
    assert {one.kind for one in cpu.collectives} == {"all_reduce"}
    assert sum(one.size_bytes for one in cpu.collectives) == 4 * sum(layer.parameters for layer in cpu.layers)


@pytest.mark.parametrize(
    ("name", "target", "kinds"),
    [
        ("topk", "compressors.topk.TopK", {"all_gather", "all_to_all"}),
        ("int8", "compressors.int8.Int8", {"all_gather", "all_to_all"}),
        ("powersgd", "compressors.powersgd.PowerSGD", {"all_reduce"}),
        ("sz3", "compressors.sz3.SZ3", {"all_gather", "all_to_all"}),
    ],
)
def test_each_route_is_measured_without_other_ranks(name: str, target: str, kinds: set[str]) -> None:
    found = measure(spec(Part(name, target)))
    assert {one.kind for one in found.collectives} <= kinds
    assert all(seconds > 0 for bucket in found.codec for _, seconds in bucket.rounds)
    assert {phase for bucket in found.codec for phase, _ in bucket.rounds} == {"compress", "decompress"}


class Busy(torch.optim.SGD):
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        end_s = time.thread_time() + 0.02
        while time.thread_time() < end_s:
            pass


class TakesOver(Uncompressed):
    traits = dataclasses.replace(Uncompressed.traits, owns="optimizer")

    def adopt(self, optimizer: torch.optim.Optimizer) -> torch.optim.Optimizer:
        return Busy(optimizer.param_groups[0]["params"], lr=0.1)


def test_the_optimizer_is_the_one_that_the_compressor_leaves(cpu: Profile) -> None:
    found = measure(spec(Part("takes_over", f"{__name__}.TakesOver")))
    assert found.optimizer_s >= 0.02
    assert found.cpu_step_s >= 0.02


def test_buckets_wait_for_the_layers_that_backward_reaches_before_them(cpu: Profile) -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.ReLU(), nn.Linear(2, 2))
    layers = (
        LayerTimes(name="0", parameters=6, forward_s=0, backward_s=0.1),
        LayerTimes(name="1", parameters=0, forward_s=0, backward_s=0.0),
        LayerTimes(name="2", parameters=6, forward_s=0, backward_s=0.3),
    )
    times = ComputeTimes(dataclasses.replace(cpu, layers=layers), model)
    parameters = list(model.parameters())
    assert times.backward_of(reversed(parameters)) == pytest.approx(0.4)
    assert times.backward_of(parameters[2:]) == pytest.approx(0.3)
    assert times.backward_of(parameters[3:]) == pytest.approx(0.3)  # the bias comes first, after the whole layer
    assert times.backward_of(parameters[2:3]) == 0.0
    assert ComputeTimes().backward_of(parameters) == 0.0


def test_gradients_with_a_time_of_their_own_are_ready_one_after_the_other(cpu: Profile) -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    weight, bias = (
        TensorTimes(elements=4, shape=(2, 2), backward_s=0.3),
        TensorTimes(elements=2, shape=(2,), backward_s=0.1),
    )
    layers = tuple(
        LayerTimes(name=name, parameters=6, forward_s=0, backward_s=0.4, tensors=(weight, bias)) for name in ("0", "1")
    )
    profile = dataclasses.replace(cpu, layers=layers)
    parameters = list(model.parameters())
    times = ComputeTimes(profile, model)
    assert [times.backward_of([p]) for p in parameters] == pytest.approx([0.3, 0.1, 0.3, 0.1])
    assert [profile.ready_s(elements) for elements in (1, 2, 3, 6, 7, 12)] == pytest.approx(
        [0.1, 0.1, 0.4, 0.4, 0.5, 0.8]
    )
    parameters[3].requires_grad_(False)  # what backward takes to pass it belongs to the one that learns
    assert ComputeTimes(profile, model).backward_of(parameters[2:3]) == pytest.approx(0.4)


def test_calibration_notes_the_shapes_of_parameters(cpu: Profile) -> None:
    for layer in cpu.layers:
        assert sum(tensor.elements for tensor in layer.tensors) == layer.parameters
        assert all(math.prod(tensor.shape) == tensor.elements for tensor in layer.tensors)
    assert Profile.from_json(json.loads(json.dumps(cpu.to_json()))) == cpu


def answer(question: dict[str, object]) -> tuple[int, dict[str, object]]:
    sink = io.StringIO()
    return calibrate(io.StringIO(json.dumps(question)), sink), json.loads(sink.getvalue())


def test_what_was_measured_before_is_taken_as_it_is(cpu: Profile) -> None:
    paced = spec(device=Part("paced", "testbed.core.device.Paced", {"step_s": 3.0}))
    status, said = answer({"spec": paced.to_json(), "cpu": cpu.to_json()})
    assert status == EXIT_COMPLETED
    assert Profile.from_json(said["cpu"]) == cpu  # type: ignore[arg-type]
    assert Profile.from_json(said["device"]).forward_s == pytest.approx(1.0)  # type: ignore[arg-type]


def test_a_model_that_was_measured_with_another_compressor_is_taken_and_the_rest_is_measured(cpu: Profile) -> None:
    model = dataclasses.replace(cpu, forward_s=9.0, backward_s=18.0, optimizer_s=27.0, compressor="another")
    asked = spec(Part("topk", "compressors.topk.TopK")).to_json()
    status, said = answer({"spec": asked, "cpu": None, "model": model.to_json()})
    assert status == EXIT_COMPLETED
    for name in ("cpu", "device"):
        found = Profile.from_json(said[name])  # type: ignore[arg-type]
        assert (found.forward_s, found.backward_s, found.layers) == (9.0, 18.0, cpu.layers)
        assert 0 < found.optimizer_s < 9 and 0 < found.cpu_step_s < 9, "what it is on this machine now"
        assert "TopK" in found.compressor and found.codec_step_s > 0


def test_a_device_that_cannot_be_had_is_a_fault(cpu: Profile) -> None:
    missing = spec(device=Part("profile", "testbed.core.device.Profiled", {"file": "/no/such.json"}))
    status, said = answer({"spec": missing.to_json(), "cpu": cpu.to_json()})
    assert status == EXIT_INPUT
    assert "/no/such.json" in said["faults"][0]  # type: ignore[index]


def test_a_profile_has_the_codec_at_a_ladder_of_sizes() -> None:
    found = measured(spec(), "cpu")
    elements = [bucket.elements for bucket in found.codec]
    assert elements == sorted(elements)
    assert {1024, 4096} <= set(elements)
    assert found.provenance["measured_on"] == "cpu"


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is an accelerator")
def test_an_accelerator_that_is_not_there_is_named() -> None:
    with pytest.raises(InputError, match=r"--device cuda:.*this machine has cpu"):
        measured(spec(), "cuda")


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no accelerator")
def test_an_accelerator_is_measured_layer_by_layer() -> None:
    found = measured(spec(), "cuda")
    assert found.provenance["measured_on"] == torch.cuda.get_device_name()
    assert all(layer.forward_s > 0 for layer in found.layers if layer.parameters)
