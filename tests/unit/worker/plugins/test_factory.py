"""Parts by name, and the check the orchestrator runs before it builds anything."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
import torch

from compressors.base.compressor import Compressor, Context, Layout, Traits
from compressors.base.feedback import take_momentum
from compressors.topk import TopK
from testbed.core.errors import EXIT_COMPLETED, EXIT_INPUT, InputError
from testbed.core.spec.run_spec import Part
from testbed.core.spec.schedule import Change
from testbed.worker.interfaces.strategy import StepStats, Strategy, WorkerContext
from testbed.worker.interfaces.workload import Batch
from testbed.worker.model import checkpoint
from testbed.worker.plugins.factory import build
from testbed.worker.training.parts import build_parts
from testbed.worker.workloads.digits import Digits
from tests.unit.worker.plugins.checking import check_of, spec_of
from tests.waiting import HANG_S
from topologies import lan

ROOT = Path(__file__).resolve().parents[4]


def test_a_possible_spec_has_no_faults() -> None:
    status, answer = check_of(spec_of())
    assert status == EXIT_COMPLETED
    assert answer == {
        "faults": [],
        "parameters": 1091466,
        "metric": {"name": "accuracy", "target": 0.97, "higher_is_better": True},
        "uses_feedback": False,
        "exchanges_models": False,
        "computes": True,
        "epoch_steps": 23,
        "data_hash": None,
        "data_licence": None,
        "start_hash": None,
        "lacks": [],
    }


def test_a_model_to_begin_with_is_checked_before_anything_is_built(tmp_path: Path) -> None:
    path = tmp_path / "model.pt"
    state = dict(build_parts(spec_of()).workload.model(0).state_dict())
    checkpoint.keep(state, path)
    lora = Part("lora", "testbed.worker.transforms.lora.LoRA", {"rank": 4, "layers": ["8"]})
    status, answer = check_of(spec_of(start_from=str(path), transform=lora))
    assert status == EXIT_COMPLETED
    assert answer["start_hash"] == hashlib.sha256(path.read_bytes()).hexdigest()
    assert answer["parameters"] == 4 * 2 * 640
    checkpoint.keep({name: value for name, value in state.items() if name != "10.bias"} | {"a": state["0.bias"]}, path)
    status, answer = check_of(spec_of(start_from=str(path)))
    assert (status, len(answer["faults"])) == (EXIT_INPUT, 2)
    assert answer["faults"][0] == f"start_from={path}: it lacks 10.bias, which the model has"
    lora.params["layers"] = ["head"]
    assert "transform.layers: the model has no head" in check_of(spec_of(transform=lora))[1]["faults"][0]


def test_faults_of_all_parts_come_at_once() -> None:
    status, answer = check_of(
        spec_of(
            compressor=Part("topk", "compressors.topk.TopK", {"density": 2, "densty": 0.1}),
            workload=Part("digits", "testbed.worker.workloads.digits.Digits", {"learning_rate": -1, "momentum": 1}),
            strategy=Part("ddp", "testbed.worker.strategies.ddp.DDP", {"bucket_size": "4"}),
            device=Part("native", "testbed.core.device.Native", {"speed": 2}),
        )
    )
    assert status == EXIT_INPUT
    assert answer["faults"] == [
        "workload.learning_rate=-1: must be above 0 and below 10",
        "workload.momentum=1: must be in [0, 1)",
        "strategy.bucket_size=4: size '4': no unit; use one of B, kB, MB, GB, KiB, MiB, GiB",
        "compressor.densty=0.1: unknown; did you mean density? topk knows: density, feedback",
        "compressor.density=2: must be in (0, 1]",
        "device.speed=2: unknown; native knows: no parameters",
    ]


@pytest.mark.parametrize(
    ("workload", "target", "fault"),
    [
        ("digits.Digits", 90, "target=90: accuracy is from 0 to 1; did you mean target=0.9?"),
        ("sensors.Sensors", -1, "target=-1: roc_auc is from 0 to 1; give a value that it can have"),
        ("bytelm.Bytelm", -2, "target=-2: bits_per_byte is at least 0; give a value that it can have"),
        ("replay.Replay", 0.9, "target=0.9: workload=mine has no metric that could reach it; leave it out"),
    ],
)
def test_a_target_that_cannot_be_is_refused(workload: str, target: float, fault: str) -> None:
    part = Part("mine", f"testbed.worker.workloads.{workload}", {"model": "resnet18"} if "replay" in workload else {})
    assert fault in check_of(spec_of(workload=part, target=target))[1]["faults"]


def test_torch_ddp_refuses_compressors_by_name() -> None:
    torch_ddp = Part("torch_ddp", "testbed.worker.strategies.torch_ddp.TorchDDP")
    assert check_of(spec_of(strategy=torch_ddp))[0] == EXIT_COMPLETED
    status, answer = check_of(spec_of(strategy=torch_ddp, compressor=Part("fp16", "compressors.fp16.Float16")))
    assert status == EXIT_INPUT
    (fault,) = answer["faults"]
    assert fault.startswith("compressor=fp16: strategy=torch_ddp sends everything uncompressed; use compressor=none")
    kept = spec_of(strategy=torch_ddp, compressor=Part("none", "compressors.none.Uncompressed", {"feedback": "plain"}))
    (fault,) = check_of(kept)[1]["faults"]
    assert fault.startswith("compressor=none compressor.feedback=plain: strategy=torch_ddp")


class Undeclared(Strategy):
    """Has no more than a strategy must have."""

    def bind(self, context: WorkerContext) -> None:
        return

    def step(self, batch: Batch, step: int) -> StepStats:
        return StepStats(None)


def test_a_strategy_of_ones_own_that_declares_nothing_is_not_recorded_as_compressed() -> None:
    mine = Part("mine", f"{__name__}.Undeclared")
    assert check_of(spec_of(strategy=mine))[0] == EXIT_COMPLETED
    status, answer = check_of(spec_of(strategy=mine, compressor=Part("topk", "compressors.topk.TopK")))
    assert status == EXIT_INPUT
    (fault,) = answer["faults"]
    assert fault.startswith("compressor=topk: strategy=mine sends everything uncompressed")


class Wrapper(Compressor):
    traits = Traits(own_rounds=True, point_to_point=False, owns="momentum", max_world=3)

    def __init__(self, *, inner: Compressor, depth: int = 1) -> None:
        super().__init__()
        if not isinstance(inner, Compressor):
            raise ValueError(f"inner={inner}: must be a compressor")
        self.inner = inner

    def payload_bytes(self, layout: Layout, context: Context) -> int:
        return self.inner.payload_bytes(layout, context)

    def adopt(self, optimizer: torch.optim.Optimizer) -> torch.optim.Optimizer:
        take_momentum(optimizer, type(self).__name__)
        return optimizer


class AdamDigits(Digits):
    def optimizer(self, parameters: Iterable[torch.nn.Parameter]) -> torch.optim.Optimizer:
        return torch.optim.Adam(parameters)


def _wrapper(inner: object) -> Part:
    return Part("wrapper", f"{__name__}.Wrapper", {"inner": inner})


def test_a_part_within_a_part_is_built() -> None:
    built = build("compressor", _wrapper({"_target_": "compressors.topk.TopK", "density": 0.5}), Compressor)
    assert isinstance(built.inner, TopK) and built.inner.density == 0.5
    nested = {"_target_": f"{__name__}.Wrapper", "inner": {"_target_": "compressors.topk.TopK", "density": 2}, "x": 1}
    for inner, faults in (
        (
            nested,
            [
                "compressor.inner.x=1: unknown; Wrapper knows: inner, depth",
                "compressor.inner.inner.density=2: must be in (0, 1]",
            ],
        ),
        ({"_target_": "nowhere.Nothing"}, ["compressor.inner=Nothing: cannot load 'nowhere.Nothing': "]),
        (7, ["compressor.inner=7: must be a compressor"]),
    ):
        with pytest.raises(InputError) as caught:
            build("compressor", _wrapper(inner), Compressor)
        assert len(caught.value.faults) == len(faults)
        assert all(found.startswith(fault) for found, fault in zip(caught.value.faults, faults, strict=True))


def test_momentum_has_one_owner_and_sums_have_their_limit() -> None:
    wrapper = _wrapper({"_target_": "compressors.topk.TopK"})
    assert check_of(spec_of(compressor=wrapper))[1]["faults"] == []  # it takes the momentum of SGD
    adam = Part("digits", f"{__name__}.AdamDigits")
    assert check_of(spec_of(workload=adam))[0] == EXIT_COMPLETED
    answer = check_of(spec_of(compressor=wrapper, workload=adam))[1]
    fault = "compressor: Wrapper applies momentum itself and needs SGD, found Adam, which has moments of its own"
    assert answer["faults"] == [fault]
    answer = check_of(spec_of(compressor=wrapper, topology=lan.build(workers=4)))[1]
    assert answer["faults"] == ["compressor=wrapper: workers=4: Wrapper sums at most 3 ranks before its sums overflow"]


def test_the_command_reads_a_spec_and_prints_one_object() -> None:
    spec = spec_of(compressor=Part("int8", "compressors.int8.Int8", {"block_size": 7}))
    command = [sys.executable, "-m", "testbed.worker", "check"]
    done = subprocess.run(
        command, input=json.dumps(spec.to_json()), capture_output=True, text=True, cwd=ROOT, timeout=HANG_S, check=False
    )
    assert done.returncode == EXIT_INPUT
    assert json.loads(done.stdout)["faults"] == [
        "compressor.block_size=7: must be a whole number, at least 8 and at most 1048576"
    ]
    done = subprocess.run(command, input="{}", capture_output=True, text=True, cwd=ROOT, timeout=HANG_S, check=False)
    assert done.returncode == EXIT_INPUT
    assert json.loads(done.stdout)["faults"][0].startswith("spec: ")


def test_an_unknown_command_is_refused() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "testbed.worker", "rnu"],
        capture_output=True,
        text=True,
        cwd=ROOT,
        timeout=HANG_S,
        check=False,
    )
    assert done.returncode == EXIT_INPUT
    assert "run|check" in done.stderr


class Listing(Compressor):
    traits = Traits()

    def __init__(self, *, rules: list[Any]) -> None:
        super().__init__()
        self.rules = rules

    def payload_bytes(self, layout: Layout, context: Context) -> int:
        return 0


def test_parts_in_lists_are_built_and_all_their_faults_named() -> None:
    def listed(*densities: float) -> Part:
        rules = [{"min_numel": 5, "codec": {"_target_": "compressors.topk.TopK", "density": d}} for d in densities]
        return Part("listing", f"{__name__}.Listing", {"rules": rules})

    built = build("compressor", listed(0.5, 1), Compressor)
    assert [rule["codec"].density for rule in built.rules] == [0.5, 1]
    assert built.rules[0]["min_numel"] == 5
    with pytest.raises(InputError) as caught:
        build("compressor", listed(2, 0.5, 3), Compressor)
    assert caught.value.faults == (
        "compressor.rules[0].codec.density=2: must be in (0, 1]",
        "compressor.rules[2].codec.density=3: must be in (0, 1]",
    )


def test_only_ranks_that_a_strategy_outlives_may_join_again() -> None:
    nodes = [node.name for node in lan.build(workers=2).nodes]
    events = tuple(Change(t_s=t_s, kind=kind, node=node) for t_s, kind in ((1, "crash"), (2, "join")) for node in nodes)
    server = Part("parameter_server", "testbed.worker.strategies.parameter_server.ParameterServer")
    _, answer = check_of(spec_of(events=events))
    assert answer["faults"] == [
        f"events: {node} cannot join at 2 s: strategy=ddp does not go on without it, nor take it in again"
        for node in nodes
    ]
    _, answer = check_of(spec_of(events=events, strategy=server))
    found = [f" {nodes[0]} cannot join at 2 s", f" {nodes[0]}, which serves, crashes at 1 s"]
    assert [fault.split(":")[1] for fault in answer["faults"]] == found
    changing = Part("pufferfish", "testbed.worker.transforms.pufferfish.Pufferfish")
    _, answer = check_of(spec_of(events=events, strategy=server, transform=changing))
    assert any(f"{nodes[1]} cannot join at 2 s: transform=pufferfish" in fault for fault in answer["faults"])


def test_a_server_that_is_to_crash_must_leave_its_state_and_join_again() -> None:
    node = lan.build(workers=3).nodes[0].name
    crash, join = (Change(t_s=t_s, kind=kind, node=node) for t_s, kind in ((1, "crash"), (2, "join")))
    target = "testbed.worker.strategies.parameter_server.ParameterServer"

    def faults(events: tuple[Change, ...], workers: int = 3, **params: Any) -> list[str]:
        part = Part("parameter_server", target, params)
        spec = spec_of(topology=lan.build(workers=workers), events=events, strategy=part)
        answer = check_of(spec)[1]
        return list(answer["faults"])

    (fault,) = faults((crash,))
    assert fault.startswith(f"events: {node}, which serves, crashes at 1 s: strategy=parameter_server does not go on")
    assert fault.endswith("use strategy.checkpoint=true, and a join event")
    (fault,) = faults((crash,), checkpoint=True)
    assert fault.startswith(f"events: {node}, which serves, crashes at 1 s, and no join event starts it again")
    assert not faults((crash, join), checkpoint=True)
    (fault,) = faults((crash, join), workers=1, checkpoint=True)
    assert "one worker trains without a server" in fault
    again = Change(t_s=3, kind="crash", node=node)
    (fault,) = faults((crash, join, again), checkpoint=True)
    assert "crashes at 3 s, and no join event" in fault


def test_a_fault_within_a_part_does_not_hide_those_of_its_other_parameters() -> None:
    inner = {"_target_": "compressors.topk.TopK", "density": 4}
    with pytest.raises(InputError) as caught:
        build("compressor", Part("zstd", "compressors.zstd.Zstd", {"inner": inner, "level": 30}), Compressor)
    assert caught.value.faults == (
        "compressor.inner.density=4: must be in (0, 1]",
        "compressor.level=30: must be a whole number, at least 1 and at most 19",
    )
    with pytest.raises(InputError) as caught:
        build("device", Part("paced", "testbed.core.device.Paced", {"codec_speedup": 0}), object)
    assert caught.value.faults == (
        "device.step_s: paced needs a value",
        "device.codec_speedup=0: must be above 0 and below 1e+06",
    )
