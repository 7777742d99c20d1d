from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from testbed.core.device.timelines.timeline import Phases, Timeline, between
from testbed.core.device.timelines.timeline_file import read_timeline, timeline_of
from testbed.core.errors import InputError

TIMELINE: dict[str, Any] = {
    "format": "longhaul-timeline",
    "version": 1,
    "model": "small",
    "sample": "8 x 8 pixels",
    "batch_size": 4,
    "precision": "bf16",
    "device": "an accelerator",
    "software": {"torch": "2.13"},
    "optimizer": "sgd",
    "phases_s": {"forward": 0.01, "backward": 0.02, "optimizer": 0.001},
    "hooked_phases_s": {"forward": 0.0125, "backward": 0.025, "optimizer": 0.001},
    "free_running_step_s": 0.03,
    "host_limited": True,
    "forward_start_s": [["conv", "Conv2d", 0.001], ["relu", "ReLU", 0.005], ["fc", "Linear", 0.0075]],
    "without_start": ["attention"],
    "gradient_ready_s": [
        ["fc.bias", [10], 0.001],
        ["fc.weight", [10, 16], 0.005],
        ["attention.in_proj", [48, 16], 0.015],
        ["conv.weight", [16, 3, 3, 3], 0.025],
    ],
    "provenance": {"made_by": "a test"},
}


def test_a_timeline_comes_back_from_its_file(tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    path.write_text(json.dumps(TIMELINE))
    found = read_timeline(path)
    assert json.loads(json.dumps(found.to_json())) == TIMELINE
    assert found.key == ("small", "bf16", 4)


def test_without_hooks_each_phase_is_as_long_as_nobody_measured_in_it() -> None:
    found = timeline_of(TIMELINE, "t").without_hooks()
    assert found.hooked_phases_s == found.phases_s == Phases(forward=0.01, backward=0.02, optimizer=0.001)
    assert [at_s for *_, at_s in found.forward_start_s] == pytest.approx([0.0008, 0.004, 0.006])
    assert [at_s for *_, at_s in found.gradient_ready_s] == pytest.approx([0.0008, 0.004, 0.012, 0.02])
    assert found.without_hooks() == found


def _spoilt(change: Callable[[dict[str, Any]], object]) -> dict[str, Any]:
    data = copy.deepcopy(TIMELINE)
    change(data)
    return data


def _set(*path: str | int, value: object) -> Callable[[dict[str, Any]], object]:
    def change(data: Any) -> None:
        for key in path[:-1]:
            data = data[key]
        data[path[-1]] = value

    return change


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        (_set("format", value="x"), 'is no timeline: its key "format"'),
        (_set("version", value=2), "version='2': this release reads version 1"),
        (_set("batchsize", value=2), "'batchsize' is no key of a timeline; did you mean batch_size"),
        (lambda data: data.pop("device"), "device: is missing"),
        (_set("model", value=""), "model='': must be text"),
        (_set("precision", value="fp8"), "precision='fp8': must be one of fp32, tf32, bf16, fp16"),
        (_set("batch_size", value=True), "batch_size='True': must be a whole number"),
        (_set("batch_size", value=4.0), "batch_size='4.0': must be a whole number"),
        (_set("software", value={}), "software='{}': must be names with values"),
        (_set("software", "torch", value=2.1), "software.torch='2.1': must be text"),
        (_set("provenance", value={}), "provenance='{}': must be names with values"),
        (_set("host_limited", value=0), "host_limited='0': must be true or false"),
        (
            _set("host_limited", value=False),
            "host_limited=false: must be true, since a step with hooks took 1.28 times",
        ),
        (_set("phases_s", value=[1, 2, 3]), "phases_s='[1, 2, 3]': must have forward, backward, optimizer"),
        (_set("phases_s", "forward", value=0), "phases_s.forward='0': must be seconds above 0"),
        (_set("phases_s", "other", value=0.1), "phases_s.'other' is no key"),
        (_set("free_running_step_s", value=-1), "free_running_step_s='-1': must be seconds above 0"),
        (_set("forward_start_s", value=[]), "forward_start_s='[]': must be a list of layers"),
        (_set("forward_start_s", 1, value=["relu", 0.1]), "forward_start_s[1]=\"['relu', 0.1]\": must be [name, kind"),
        (_set("forward_start_s", 1, 2, value=0.0005), "forward_start_s: relu: 0.0005 s is before the 0.001 s of conv"),
        (_set("forward_start_s", 2, 2, value=0.02), "forward_start_s: fc: 0.02 s is after the end of forward"),
        (_set("forward_start_s", 1, 2, value="1"), "forward_start_s: relu: '1' is no time"),
        (lambda data: data["forward_start_s"].pop(), "forward_start_s: 'fc' is missing, though it has gradients"),
        (_set("without_start", value=[]), "forward_start_s: 'attention' is missing, though it has gradients"),
        (_set("without_start", value=["attention", "fc"]), "without_start: 'fc' has a start; remove it"),
        (_set("without_start", value=["attention", "x"]), "without_start: 'x' has no gradients; remove it"),
        (_set("gradient_ready_s", 1, 2, value=0.016), "attention.in_proj: 0.015 s is before the 0.016 s of fc.weight"),
        (_set("gradient_ready_s", 1, 2, value=10**400), "gradient_ready_s: fc.weight: '1000"),
        (_set("gradient_ready_s", 1, 1, value=[10, 0]), "gradient_ready_s: fc.weight: '[10, 0]' is no shape"),
        (_set("gradient_ready_s", 1, 1, value=[]), "gradient_ready_s: fc.weight: '[]' is no shape"),
        (_set("gradient_ready_s", 1, 0, value="fc.bias"), "gradient_ready_s: fc.bias: is given twice"),
        (_set("gradient_ready_s", 3, 2, value=0.03), "conv.weight: 0.03 s is after the end of backward"),
    ],
)
def test_what_is_wrong_is_refused_with_the_layer(change: Callable[[dict[str, Any]], object], fault: str) -> None:
    with pytest.raises(InputError) as caught:
        timeline_of(_spoilt(change), "t.json")
    assert all(line.startswith("t.json: ") for line in caught.value.faults)
    assert fault in "\n".join(caught.value.faults)


def test_all_faults_are_told_at_once() -> None:
    def change(data: dict[str, Any]) -> None:
        data["precision"], data["batch_size"] = "x", 0
        data["gradient_ready_s"][2][2] = 0.001

    with pytest.raises(InputError) as caught:
        timeline_of(_spoilt(change), "t.json")
    assert len(caught.value.faults) == 3


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("", "cannot be read as JSON"),
        ("[]", "is no timeline"),
        ('{"format": "longhaul-timeline", "format": 1}', "the key 'format' is given twice"),
        ('{"format": NaN}', "NaN is no number"),
        ("[" * 100_000, "nested too deeply"),
    ],
)
def test_what_is_no_timeline_is_refused_by_its_path(tmp_path: Path, text: str, fault: str) -> None:
    path = tmp_path / "t.json"
    path.write_text(text)
    with pytest.raises(InputError, match=fault) as caught:
        read_timeline(path)
    assert caught.value.faults[0].startswith(str(path))


def _larger() -> Timeline:
    def change(data: dict[str, Any]) -> None:
        data["batch_size"] = 8
        for phases in ("phases_s", "hooked_phases_s"):
            data[phases] = {"forward": 0.03, "backward": 0.06, "optimizer": 0.001}
        data["free_running_step_s"], data["host_limited"] = 0.091, False
        data["gradient_ready_s"][3][2] = 0.06
        # ready in another order than with the smaller batch
        data["gradient_ready_s"][:2] = [["fc.weight", [10, 16], 0.002], ["fc.bias", [10], 0.005]]

    return timeline_of(_spoilt(change), "t")


def test_a_batch_between_two_takes_times_between_theirs() -> None:
    found = between(timeline_of(TIMELINE, "t"), _larger(), 5)
    assert (found.batch_size, found.host_limited) == (5, True)
    assert found.phases_s.forward == pytest.approx(0.015)
    assert found.phases_s.backward == pytest.approx(0.03)
    ready = {name: at_s for name, _, at_s in found.gradient_ready_s}
    assert ready["conv.weight"] == pytest.approx(0.03)
    assert ready["fc.bias"] == pytest.approx(0.75 * 0.0008 + 0.25 * 0.005)
    assert list(ready.values()) == sorted(ready.values())


def test_timelines_of_other_layers_or_devices_are_not_mixed() -> None:
    other = timeline_of(_spoilt(_set("gradient_ready_s", 0, 0, value="fc.bias2")), "t")
    with pytest.raises(ValueError, match=r"other layers: .*fc\.bias"):
        between(other, _larger(), 5)
    other = timeline_of(_spoilt(_set("device", value="another")), "t")
    with pytest.raises(ValueError, match="differ in device"):
        between(other, _larger(), 5)
