"""Classes that a part names: old names work too, and all are checked before the first is called."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from testbed.core.errors import EXIT_INPUT, InputError
from testbed.core.spec.run_spec import Part
from testbed.worker.plugins.factory import build
from tests.unit.worker.plugins.checking import check_of, spec_of

SHELL = {"args": "touch called", "shell": True}
DEEPREDUCE, POLICY = "compressors.deepreduce.DeepReduce", "compressors.policy.Policy"
FEDERATED = "testbed.worker.strategies.federated.Federated"


@pytest.mark.parametrize(
    ("target", "params"),
    [
        ("testbed.core.bound_baselines.Fixed", {"alpha": 0.01}),
        ("testbed.core.bound_schedules.AdaptiveBound", {}),
        ("testbed.core.break_even.Gate", {}),
        ("testbed.core.federated.availability.Alternating", {"present_s": 60, "absent_s": 30}),
        ("testbed.core.federated.oort.Oort", {}),
        ("testbed.core.federated.partitions.Iid", {}),
        ("testbed.core.federated.partitions.Dirichlet", {"alpha": 0.3}),
        ("testbed.core.federated.partitions.Shards", {}),
        ("testbed.worker.federated.attacks.SignFlip", {}),
        ("testbed.worker.federated.robust.Krum", {"most_liars": 1}),
        ("testbed.worker.federated.secure.Secure", {"privacy": 1, "dropouts": 1}),
    ],
)
def test_a_class_is_built_by_the_name_it_had_before_it_moved(target: str, params: dict[str, Any]) -> None:
    built = build("strategy.given", Part("given", target, params), object)
    assert type(built).__name__ == target.rpartition(".")[2]
    assert type(built).__module__ != target.rpartition(".")[0]


def test_a_fault_of_a_class_that_moved_has_its_present_name() -> None:
    nested = {"partition": {"_target_": "testbed.core.federated.partitions.Dirichlett"}}
    status, answer = check_of(spec_of(workload=Part("digits", "testbed.worker.workloads.digits.Digits", nested)))
    assert status == EXIT_INPUT
    (fault,) = answer["faults"]
    asked = "workload.partition=Dirichlett: cannot load 'testbed.worker.data.partitions.Dirichlett'"
    assert fault.startswith(asked)


@pytest.mark.parametrize("target", ["os.system", "builtins.eval", "subprocess.Popen", "subprocess.check_output"])
@pytest.mark.parametrize("kind", ["compressor", "strategy", "workload", "device", "transform"])
def test_nothing_is_called_that_is_no_class_of_its_role(kind: str, target: str, called: Path) -> None:
    status, answer = check_of(spec_of(**{kind: Part("mine", target, SHELL)}))
    assert status == EXIT_INPUT and not called.exists()
    assert any(f"{kind}=mine: {target} is not a " in fault for fault in answer["faults"])


@pytest.mark.parametrize(
    ("kind", "target", "params"),
    [
        ("compressor", DEEPREDUCE, {"inner": ...}),
        ("compressor", DEEPREDUCE, {"inner": {"_target_": "compressors.topk.TopK", "density": ...}}),
        ("compressor", POLICY, {"otherwise": {"_target_": DEEPREDUCE, "inner": ...}}),
        ("compressor", POLICY, {"otherwise": {"_target_": "compressors.topk.TopK"}, "rules": [{"compressor": ...}]}),
        ("compressor", "compressors.adaptive.Adaptive", {"candidates": [{"compressor": ...}]}),
        ("compressor", "compressors.topk.TopK", {"density": ...}),
        ("strategy", FEDERATED, {"partition": ..., "local_steps": 1}),
        ("strategy", FEDERATED, {"defence": ...}),
        ("strategy", FEDERATED, {"uplink": {"codec": ...}}),
        ("strategy", FEDERATED, {"bound": ...}),
        ("strategy", "testbed.worker.strategies.hybrid.Hybrid", {"activations": ...}),
        ("workload", "testbed.worker.workloads.digits.Digits", {"partition": ...}),
    ],
)
@pytest.mark.parametrize("inner", [{"_target_": "subprocess.Popen", **SHELL}, {"_target_": "os.system"}])
def test_nor_is_a_class_within_a_parameter(
    kind: str, target: str, params: dict[str, Any], inner: dict[str, Any], called: Path
) -> None:
    status, answer = check_of(spec_of(**{kind: Part("mine", target, _filled(params, inner))}))
    assert status == EXIT_INPUT and not called.exists()
    assert any(inner["_target_"] in fault and fault.startswith(f"{kind}.") for fault in answer["faults"])


def _filled(params: Any, inner: dict[str, Any]) -> Any:
    if isinstance(params, dict):
        return {key: _filled(value, inner) for key, value in params.items()}
    if isinstance(params, list):
        return [_filled(value, inner) for value in params]
    return inner if params is ... else params


def test_all_classes_are_looked_at_before_the_first_is_called(called: Path) -> None:
    (called.parent / "loud.py").write_text(
        "import pathlib\nfrom compressors.none import Uncompressed\n\nclass Loud(Uncompressed):\n"
        "    def __init__(self):\n        pathlib.Path('called').touch()\n"
    )
    folders = (str(called.parent),)
    rules = [{"compressor": {"_target_": "loud.Loud"}}, {"compressor": {"_target_": "os.system"}}]
    part = Part("mine", POLICY, {"otherwise": {"_target_": "loud.Loud"}, "rules": rules}, folders)
    with pytest.raises(InputError, match=r"os\.system is not a Compressor"):
        build("compressor", part, object)
    assert not called.exists()


@pytest.fixture
def called(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file that exists once something was called."""
    monkeypatch.chdir(tmp_path)
    return tmp_path / "called"


@pytest.mark.parametrize(
    ("target", "fault"),
    [
        ("compressors.nowhere.Nothing", "cannot load 'compressors.nowhere.Nothing'"),
        ("compressors.topk.Nothing", "cannot load 'compressors.topk.Nothing'"),
        ("Nothing", "cannot load 'Nothing'"),
        ("pathlib.Path", "pathlib.Path is not a Compressor"),
    ],
)
def test_a_class_that_cannot_be_had_is_named(target: str, fault: str) -> None:
    status, answer = check_of(spec_of(compressor=Part("mine", target)))
    assert status == EXIT_INPUT
    assert answer["faults"][0].startswith("compressor=mine: ")
    assert fault in answer["faults"][0]
