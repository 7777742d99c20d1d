"""What K-FAC sees of a model, what it asks of the clock, and a replay's sizes."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from torch import Tensor, nn

from testbed.core.costs.kfac_costs import costs_of
from testbed.core.costs.kfac_variants import DEFAULTS, Settings
from testbed.core.device.factored_layer import Factor
from testbed.core.device.operations import operations
from testbed.core.device.profile import Profile, WorkTimes
from testbed.core.errors import InputError, RunError
from testbed.core.spec.run_spec import RunSpec
from testbed.worker.device import clock as clock_module
from testbed.worker.device.clock import PhaseClock
from testbed.worker.device.compute_times import ComputeTimes
from testbed.worker.interfaces.strategy import WorkerContext
from testbed.worker.methods.kfac.curvature import Curvature
from testbed.worker.methods.kfac.factor_collector import Observer
from testbed.worker.methods.kfac.replayed_curvature import ReplayedCurvature
from testbed.worker.profile.step_times import measure
from testbed.worker.reduction.rehearsal import Echo
from testbed.worker.strategies.kfac import KFAC
from testbed.worker.training.parts import build_parts
from testbed.worker.workloads.replay import Replay
from tests.distributed.harness import CONF, make_spec, part
from tests.unit.fake_time import FakeTime


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


def test_inputs_and_gradients_are_seen_in_the_order_of_the_pass_but_not_those_of_copies() -> None:
    model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(inplace=True), nn.Linear(4, 2))
    seen: list[tuple[str, str, tuple[int, ...]]] = []
    modules = {name: model.get_submodule(name) for name in ("0", "2")}
    observer = Observer(
        modules,
        lambda name, tensor: seen.append(("inputs", name, tuple(tensor.shape))),
        lambda name, tensor: seen.append(("gradient", name, tuple(tensor.shape))),
    )
    inputs = torch.ones(5, 3)
    model(inputs).sum().backward()
    assert seen == []  # it is off
    observer.is_on = True
    copy.deepcopy(model)(inputs).sum().backward()
    with torch.no_grad():
        model(inputs)
    assert seen == []
    model(inputs).sum().backward()
    assert seen == [
        ("inputs", "0", (5, 3)),
        ("inputs", "2", (5, 4)),
        ("gradient", "2", (5, 2)),
        ("gradient", "0", (5, 4)),
    ]
    assert list(observer.layers) == ["0", "2"]


def test_micro_batches_add_up_to_the_factor_of_the_batch() -> None:
    torch.manual_seed(0)
    module, inputs = nn.Linear(6, 3), torch.randn(8, 6)
    curvature = Curvature({"layer": module}, form="cholesky", damping=0.1, decay=0.5, kl_clip=None)
    found = {}
    for parts in (1, 4):
        for side in "ag":
            factor = curvature.layer("layer").factor(side)
            out = torch.full((factor.elements,), float("nan"))
            for number, some in enumerate(inputs.chunk(parts)):
                outputs = module(some)
                (gradient,) = torch.autograd.grad(outputs.square().sum(1).mean() / parts, outputs)
                seen = some if side == "a" else gradient
                curvature.compute(factor, seen, out, micro_batches=parts, first=number == 0)
            found[side, parts] = out
        assert curvature.factor_flop(Factor("layer", "a", 7)) == 2 * 8 * 49
    for side in "ag":
        torch.testing.assert_close(found[side, 1], found[side, 4])


def test_a_trace_is_read_from_a_packed_factor() -> None:
    curvature = Curvature({"layer": nn.Linear(2, 3)}, form="cholesky", damping=0.1, decay=0.5, kl_clip=None)
    packed = torch.tensor([1.0, 20.0, 30.0, 2.0, 40.0, 4.0])
    assert curvature.trace(Factor("layer", "g", 3), packed) == 7.0


def _replayed(**params: Any) -> ReplayedCurvature:
    workload = Replay(**params)
    return ReplayedCurvature(workload, workload.model(0), 32, "cholesky")


def test_a_replay_has_the_factors_of_the_whole_model() -> None:
    whole = _replayed(model="resnet50")
    assert len(whole.modules) == 54  # 53 convolutions and the classifier
    first, last = whole.layer("layers.0"), whole.layer(list(whole.modules)[-1])
    assert (first.inputs, first.outputs, last.inputs, last.outputs) == (147, 64, 2049, 1000)
    small = _replayed(model="resnet50", scale=16).layer("layers.0")
    assert (small.inputs, small.outputs) == (147, 64)
    assert small.factor("a").elements == pytest.approx(147 * 148 / 2 / 16, rel=0.01)
    assert small.gradient_elements == pytest.approx(147 * 64 / 16, rel=0.01)
    assert whole.factor_flop(first.factor("a")) == 2.0 * 32 * 112 * 112 * 147**2
    assert _replayed(model="vgg16").layer("layers.0").inputs == 28  # with a bias
    encoder = _replayed(model="bert-base")
    assert "layers.0" not in encoder.modules  # rows are looked up
    assert len(encoder.modules) == 12 * 6 + 1


def _replay_spec(strategy: str, device: dict[str, Any]) -> RunSpec:
    spec = make_spec(strategy, workers=4)
    workload = part("workload", "replay", {"model": "resnet18", "scale": 100})
    return dataclasses.replace(spec, workload=workload, device=part("device", "paced", device))


@pytest.mark.parametrize("strategy", ["dkfac", "spd_kfac", "pad_kfac", "dp_kfac"])
def test_work_is_measured_by_name_and_paced_by_its_flops(strategy: str) -> None:
    spec = _replay_spec(strategy, {"step_s": 0.3})
    cpu = measure(spec)
    device = build_parts(spec).device.profile(cpu)
    factors, inverses, others = (
        [piece for piece in device.work if piece.name.startswith(head)]
        for head in ("layers", "inverse of", "preconditioning of")
    )
    assert len(factors) == len(inverses) == 2 * len(others) == 2 * 21
    rate = sum(layer.forward_flop for layer in cpu.layers) / 0.1
    assert all(piece.seconds == pytest.approx(piece.flop / rate) and piece.flop > 0 for piece in device.work)
    assert [piece.size for piece in factors] == [piece.size for piece in inverses]
    assert device.step_s == pytest.approx(0.3 + sum(piece.seconds for piece in device.work) + device.codec_step_s)
    assert Profile.from_json(device.to_json()) == device


def _on_h200(strategy: str, model: str, **params: Any) -> RunSpec:
    spec = make_spec(strategy, workers=4, batch_size=64, strategy_params=params)
    workload = part("workload", "replay", {"model": model, "scale": 1000})
    return dataclasses.replace(spec, workload=workload, device=part("device", "h200"))


@pytest.mark.parametrize("form", ["cholesky", "eigen"])
def test_work_on_a_measured_accelerator_takes_what_its_operations_took(form: str) -> None:
    spec = _on_h200("spd_kfac", "resnet18", inverse=form)
    parts = build_parts(spec)
    cpu = measure(spec)
    device = parts.device.profile(cpu)
    known = {dimension: dict(rows) for dimension, rows in operations("h200").seconds.items()}
    inverses = [piece for piece in device.work if piece.kind == "inverse" and piece.size in known[form]]
    assert len(inverses) > 30
    assert all(piece.seconds == pytest.approx(known[form][piece.size]) for piece in inverses)
    foreseen = parts.strategy.expected_work(parts.workload, 64)  # type: ignore[attr-defined]
    assert foreseen.work == tuple(dataclasses.replace(piece, seconds=0.0) for piece in device.work)
    assert foreseen.factored == cpu.factored
    # a step is paced by them: this rank's inverses, everyone's, all factors and all preconditioning
    clock = _stepped(spec, dataclasses.replace(device, codec=()))
    given = {piece.name: clock.given.get(piece.name, 0.0) for piece in device.work}
    assert given == pytest.approx({piece.name: piece.seconds for piece in device.work})


def test_factors_beyond_the_measured_dimensions_are_refused_before_anything_is_measured() -> None:
    with pytest.raises(InputError) as refused:
        build_parts(_on_h200("pad_kfac", "vgg16"))
    (fault,) = refused.value.faults
    assert fault.startswith("device=h200: it has K-FAC's operations of dimensions up to 4,608, and 12 are of larger")


def test_plans_go_by_the_measured_inverses_and_not_by_a_cubic_law() -> None:
    spec = _on_h200("spd_kfac", "resnet18")
    cpu = measure(spec)
    device = build_parts(spec).device.profile(cpu)
    seconds = {piece.name: piece.seconds for piece in device.work}
    factors = [layer.factor("a") for layer in cpu.factored]
    invert_s = costs_of(spec, Settings.of(spec.strategy.params), factors, seconds.get).invert_s
    by_dimension = {factor.dimension: invert_s(factor) for factor in factors}
    assert by_dimension[4608] == pytest.approx(operations("h200").inverse_s("cholesky", 4608))
    assert by_dimension[4608] / by_dimension[576] < 20 < 8**3


def test_seconds_of_work_are_given_before_anything_was_measured() -> None:
    """What the device is asked for first are its layers, of a profile without work."""
    work_s = {"factor": 0.2, "inverse": 0.4}
    spec = _replay_spec("spd_kfac", {"step_s": 0.3, "work_s": work_s, "growth": {"inverse": 4.77e-4}})
    device = build_parts(spec).device.profile(measure(spec))
    for kind, seconds in work_s.items():
        assert sum(piece.seconds for piece in device.work if piece.kind == kind) == pytest.approx(seconds)
    plain = dataclasses.replace(spec, strategy=part("strategy", "ddp"))
    with pytest.raises(InputError, match=r"device\.work_s\.factor=0\.2: the strategy has no such work"):
        build_parts(plain).device.profile(measure(plain))


def test_a_profile_without_the_strategys_work_is_refused(tmp_path: Path) -> None:
    spec = _replay_spec("pad_kfac", {"step_s": 0.3})
    cpu = measure(spec)
    path = tmp_path / "profile.json"
    path.write_text(json.dumps(dataclasses.replace(cpu, work=cpu.work[1:]).to_json()))
    device = build_parts(dataclasses.replace(spec, device=part("device", "profile", {"file": str(path)}))).device
    with pytest.raises(InputError, match=r"1 pieces of the strategy's work take \(the first is layers\.0\.a\)"):
        device.profile(cpu)


def test_a_piece_of_work_lasts_as_long_as_the_device_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clock_module, "time", FakeTime())
    profile = Profile(
        workload="",
        compressor="",
        batch_size=1,
        layers=(),
        forward_s=0.0,
        backward_s=0.0,
        optimizer_s=0.0,
        work=(WorkTimes(name="a factor", kind="factor", size=1, seconds=0.03),),
    )
    clock = PhaseClock(2.0, ComputeTimes(profile))
    with clock.work("a factor"):
        pass
    assert clock.take() == pytest.approx({"a factor": 0.03})
    with clock.work("a factor", 1 / 3):
        pass
    with clock.work("another"):
        pass
    assert clock.take() == pytest.approx({"a factor": 0.01, "another": 0.0})


class _Recording(PhaseClock):
    """Keeps the seconds that each phase is given, and takes none of them."""

    def __init__(self, times: ComputeTimes) -> None:
        super().__init__(times=times)
        self.given: dict[str, float] = {}

    @contextmanager
    def phase(self, name: str, seconds: float | None = None) -> Iterator[None]:
        self.given[name] = self.given.get(name, 0.0) + (seconds or 0.0)
        with super().phase(name):
            yield


def _stepped(spec: RunSpec, device: Profile, steps: int = 1) -> _Recording:
    """Return the clock of one rank alone after steps on a device."""
    parts = build_parts(spec)
    model = parts.workload.model(0)
    clock = _Recording(ComputeTimes(device, model))
    parts.strategy.bind(
        WorkerContext(
            spec=spec,
            workload=parts.workload,
            model=model,
            optimizer=parts.workload.optimizer(model.parameters()),
            compressor=parts.compressor,
            comm=Echo(0, 1, 60.0),
            clock=clock,
        )
    )
    for step in range(steps):
        batch = parts.workload.batch(step, rank=0, world_size=1, batch_size=spec.batch_size, seed=0)
        with clock.phase("optimizer"):
            parts.strategy.step(batch, step)
    return clock


@pytest.mark.parametrize("accumulate", [1, 4])
def test_a_step_takes_each_piece_of_work_once_in_however_many_parts(accumulate: int) -> None:
    spec = make_spec("dkfac", workers=1, batch_size=8, strategy_params={"accumulate": accumulate})
    spec = dataclasses.replace(spec, device=part("device", "paced", {"step_s": 0.1, "work_s": {"factor": 0.4}}))
    device = build_parts(spec).device.profile(measure(spec))
    clock = _stepped(spec, device, steps=2)
    for piece in device.work:
        assert clock.given[piece.name] == pytest.approx(2 * piece.seconds), piece.name
    assert clock.given["forward"] == pytest.approx(2 * device.forward_s)


def test_what_a_plan_takes_for_granted_is_what_the_strategy_does() -> None:
    given = {name: p.default for name, p in inspect.signature(KFAC).parameters.items()}
    assert {name: given[name] for name in DEFAULTS} == DEFAULTS
    for path in (CONF / "strategy").glob("*kfac.yaml"):
        assert yaml.safe_load(path.read_text()).keys() == {"_target_", *given}, path.name


class _Lonely(nn.Module):
    """A parameter of no linear layer."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(3))

    def forward(self, inputs: Tensor) -> Tensor:
        return (self.weight * inputs).sum()


def test_a_model_without_such_layers_is_refused_in_the_first_step(monkeypatch: pytest.MonkeyPatch) -> None:
    spec = make_spec("spd_kfac", workers=1)
    parts, model = build_parts(spec), _Lonely()
    monkeypatch.setattr(parts.workload, "loss", lambda model, batch: model(batch))
    parts.strategy.bind(
        WorkerContext(
            spec=spec,
            workload=parts.workload,
            model=model,
            optimizer=torch.optim.SGD(model.parameters(), 0.1),
            compressor=parts.compressor,
            comm=Echo(0, 1, 60.0),
            clock=PhaseClock(),
        )
    )
    with pytest.raises(RunError, match="no linear layer or convolution is called exactly once"):
        parts.strategy.step(torch.ones(3), 0)
