"""`longhaul profile --trace`: times and names from traces in torch.profiler's format, and what is refused."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from testbed.core.device.timelines.timeline_file import read_timeline
from testbed.core.errors import EXIT_COMPLETED, EXIT_INPUT, InputError
from testbed.core.models.model_file import read_model
from testbed.orchestrator.cli.main import main
from testbed.orchestrator.cli.traces.imported import imported

STEP_US = 100
LAG_US = 30.0
PARAMETERS = [["a.weight", [3, 4]], ["a.bias", [3]], ["b.weight", [3, 3]], ["b.bias", [3]]]
EVALUATE = "autograd::engine::evaluate_function: "


def noted(**changes: Any) -> dict[str, Any]:
    facts = {"model": "Two", "sample": "4 numbers", "device": "a core", "torch": "2.13.0", "batch_size": 2}
    rows = [[name, shape, True, True, name] for name, shape in PARAMETERS]
    kinds = {"": "Two", "a": "Linear", "b": "Linear"}
    about = {"precision": "fp32", "kinds": kinds, "parameters": rows}
    return {"format": "longhaul-parameters", "version": 1, **facts, **about, **changes}


def op(name: str, begin_us: float, dur_us: float, **args: Any) -> dict[str, Any]:
    kind = "user_annotation" if "#" in name else "cpu_op"
    named = {key.replace("_", " "): value for key, value in args.items()}
    return {"ph": "X", "cat": kind, "name": name, "tid": 1, "ts": begin_us, "dur": dur_us, "args": named}


def gradient(begin_us: float, *shape: int) -> Iterator[dict[str, Any]]:
    yield op(f"{EVALUATE}torch::autograd::AccumulateGrad", begin_us, 2)
    yield op("torch::autograd::AccumulateGrad", begin_us + 0.5, 1, Input_Dims=[list(shape)])


def linear(begin_us: float, number: int, inputs: int) -> Iterator[dict[str, Any]]:
    yield op("aten::linear", begin_us, 10, Sequence_number=number, Input_Dims=[[2, inputs], [3, inputs], [3]])
    yield op("aten::t", begin_us + 1, 1, Sequence_number=number, Input_Dims=[[3, inputs]])
    yield op("aten::addmm", begin_us + 3, 5, Sequence_number=number + 1, Input_Dims=[[3], [2, inputs], [inputs, 3]])


def step(begin_us: float, number: int) -> Iterator[dict[str, Any]]:
    """Two linear maps: forward from 10 to 40, backward until 68, the optimizer from 70 to 78."""
    yield op("aten::randn", begin_us, 5, Input_Dims=[[3, 4]])  # a batch of the weight's shape
    yield from linear(begin_us + 10, number, 4)
    yield from linear(begin_us + 25, number + 2, 3)
    yield op(f"{EVALUATE}AddmmBackward0", begin_us + 40, 5, Sequence_number=number + 3)
    yield from gradient(begin_us + 46, 3)
    yield op(f"{EVALUATE}TBackward0", begin_us + 49, 1, Sequence_number=number + 2)
    yield from gradient(begin_us + 51, 3, 3)
    yield op(f"{EVALUATE}AddmmBackward0", begin_us + 55, 5, Sequence_number=number + 1)
    yield from gradient(begin_us + 61, 3)
    yield op(f"{EVALUATE}TBackward0", begin_us + 63, 1, Sequence_number=number)
    yield from gradient(begin_us + 66, 3, 4)
    yield op("Optimizer.step#SGD.step", begin_us + 70, 8)


def trace(steps: int = 3) -> dict[str, Any]:
    events = [event for index in range(steps) for event in step(1000 + STEP_US * index, 10 * index)]
    return {"record_shapes": 1, "deviceProperties": [], "traceEvents": events}


def on_cuda(data: dict[str, Any]) -> dict[str, Any]:
    """Return the trace with a kernel for each product and each step of the optimizer, which end later by LAG_US."""
    events: list[dict[str, Any]] = []
    for number, one in enumerate(data["traceEvents"]):
        if one["name"] in ("aten::addmm", f"{EVALUATE}AddmmBackward0", "Optimizer.step#SGD.step"):
            launch = {"ph": "X", "tid": 1, "ts": one["ts"] + 1, "dur": 1, "args": {"correlation": number}}
            kernel = {**launch, "ts": one["ts"] + LAG_US, "dur": one["dur"], "tid": 7}
            events += [
                {**launch, "cat": "cuda_runtime", "name": "cudaLaunchKernel"},
                {**kernel, "cat": "kernel", "name": "gemm"},
            ]
    return {**data, "deviceProperties": [{"id": 0, "name": "a V100"}], "traceEvents": [*data["traceEvents"], *events]}


def files(folder: Path, traced: dict[str, Any], about: dict[str, Any]) -> tuple[Path, Path]:
    paths = folder / "trace.json.gz", folder / "parameters.json"
    paths[0].write_bytes(gzip.compress(json.dumps(traced).encode()))
    paths[1].write_text(json.dumps(about))
    return paths


def us(times: Any) -> dict[str, float]:
    return {name: round(1e6 * at_s, 2) for name, _, at_s in times}


def test_a_trace_of_the_processor_gives_begins_and_gradients_by_name(tmp_path: Path) -> None:
    found = imported(*files(tmp_path, trace(), noted()), None)
    timeline = found.timeline
    assert us(timeline.forward_start_s) == {"a": 0, "b": 15}
    ready = {"b.bias": 7.5, "b.weight": 12.5, "a.bias": 22.5, "a.weight": 27.5}
    assert us(timeline.gradient_ready_s) == ready
    phases = timeline.phases_s
    assert [round(1e6 * s, 2) for s in (phases.forward, phases.backward, phases.optimizer)] == [30, 28, 8]
    assert (timeline.device, timeline.optimizer, timeline.provenance["steps"]) == ("a core", "SGD", 2)
    assert [(layer.name, layer.shapes, layer.forward_flop) for layer in found.model.layers] == [
        ("a", ((3, 4), (3,)), 2 * 4 * 3),
        ("b", ((3, 3), (3,)), 2 * 3 * 3),
    ]


def test_a_trace_of_an_accelerator_gives_the_times_of_its_kernels(tmp_path: Path) -> None:
    timeline = imported(*files(tmp_path, on_cuda(trace()), noted()), None).timeline
    # after the begin of forward, 10, kernels run from 43 to 48 and 58 to 63, of backward from 70 and 85 for 5
    assert us(timeline.forward_start_s) == {"a": 0, "b": 38}
    assert us(timeline.gradient_ready_s) == {"b.bias": 12, "b.weight": 12, "a.bias": 27, "a.weight": 27}
    phases = timeline.phases_s
    assert [round(1e6 * s, 2) for s in (phases.forward, phases.backward, phases.optimizer)] == [53, 27, 18]
    assert timeline.device == "a V100"
    assert any("no kernel ran in 7" in phrase for phrase in timeline.provenance["unknowns"])


def test_a_given_length_is_that_of_the_step_without_the_profiler(tmp_path: Path) -> None:
    timeline = imported(*files(tmp_path, trace(), noted()), 33e-6).timeline
    assert timeline.phases_s.step_s == pytest.approx(33e-6)
    assert timeline.host_limited
    assert timeline.without_hooks().forward_start_s[1][2] == pytest.approx(7.5e-6)


def test_both_files_are_written_and_can_be_read(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    traced, about = files(tmp_path, trace(1), noted())
    words = ["profile", "--trace", str(traced), "--parameters", str(about), "-o", str(tmp_path / "out" / "mine.json")]
    assert main(words) == EXIT_COMPLETED
    assert read_timeline(tmp_path / "out" / "mine.json").batch_size == 2
    assert read_model(tmp_path / "out" / "mine.model.json").parameters == 27
    assert f"device.file={tmp_path}/out/mine.json" in capfd.readouterr().out.replace("\n", "")


def test_modules_of_other_shapes_are_told_apart_though_they_share_a_shape(tmp_path: Path) -> None:
    rows = [*noted()["parameters"][2:], *noted()["parameters"][:2]]  # b stands before a, and forward begins with a
    found = imported(*files(tmp_path, trace(), noted(parameters=rows)), None)
    assert us(found.timeline.gradient_ready_s)["b.bias"] == 7.5
    assert [layer.name for layer in found.model.layers] == ["a", "b"]


def test_tied_frozen_and_unused_parameters_are_left_out(tmp_path: Path) -> None:
    more = [["tied", [3, 4], True, True, "a.weight"], ["c.weight", [9, 9], False, False, "c.weight"]]
    more += [["u.weight", [3], True, False, "u.weight"]]
    found = imported(*files(tmp_path, trace(), noted(parameters=[*noted()["parameters"], *more])), None)
    assert [name for name, *_ in found.timeline.gradient_ready_s] == ["b.bias", "b.weight", "a.bias", "a.weight"]
    assert any("1 parameters without gradients" in note and "u.weight" in note for note in found.notes)


def _without(name: str) -> Callable[[dict[str, Any]], object]:
    return lambda data: data.update(traceEvents=[one for one in data["traceEvents"] if name not in one["name"]])


@pytest.mark.parametrize(
    ("change", "about", "said"),
    [
        (
            None,
            {"parameters": [*noted()["parameters"], ["c.weight", [9, 9], True, True, "c.weight"]]},
            "c.weight: a step",
        ),
        (None, {"parameters": noted()["parameters"][:3]}, "a.bias: a step has 2 gradients of shape 3, and the model 1"),
        (None, {"parameters": noted()["parameters"][1:]}, "no parameter: a step has 1 gradients of shape 3 x 4"),
        (_without("Optimizer"), {}, "holds no whole step"),
        (_without("AccumulateGrad"), {}, "holds no whole step"),
        (_without("aten::"), {}, "no operation of forward is linked to a gradient"),
        (lambda data: data.update(record_shapes=0), {}, "record_shapes=True"),
        (lambda data: data["traceEvents"].append(op("nccl:all_reduce", 1050, 5)), {}, "nccl:all_reduce"),
        (lambda data: data["traceEvents"][0].update(ts="now"), {}, "an event is not as torch.profiler writes it"),
        (lambda data: data.pop("traceEvents"), {}, "is no trace"),
        (None, {"precision": "fp64"}, "precision='fp64': must be one of"),
        (None, {"parameters": [["a.weight", [0], True, True, "a.weight"]]}, "a.weight: '[0]' is no shape"),
        (None, {"parameters": [["a", [1], True, True, "b"]]}, "a: is tied to 'b', which is not listed before it"),
    ],
)
def test_what_does_not_fit_is_refused_by_name(
    change: Callable[[dict[str, Any]], object] | None, about: dict[str, Any], said: str, tmp_path: Path
) -> None:
    data = trace()
    if change is not None:
        change(data)
    with pytest.raises(InputError) as error:
        imported(*files(tmp_path, data, noted(**about)), None)
    assert any(said in fault for fault in error.value.faults), error.value.faults


def test_gradients_that_are_added_over_batches_are_refused(tmp_path: Path) -> None:
    data = trace(1)
    once = [event for event in data["traceEvents"] if "#" not in event["name"]]
    data["traceEvents"] += [{**event, "ts": event["ts"] - 200} for event in once]
    with pytest.raises(InputError, match="adds gradients of 2 batches"):
        imported(*files(tmp_path, data, noted()), None)


@pytest.mark.parametrize("words", [["--trace", "t.json"], ["--trace", "t", "--parameters", "p", "batch_size=8"]])
def test_words_that_do_not_belong_to_a_trace_are_refused(words: list[str]) -> None:
    assert main(["profile", *words]) == EXIT_INPUT
