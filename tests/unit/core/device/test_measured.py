from __future__ import annotations

import dataclasses
import json
import math
from pathlib import Path
from typing import Any

import pytest

from testbed.core.device import Measured, Profiled, Published
from testbed.core.device.profile import MEASURED, SCALED, Profile, WorkTimes
from testbed.core.device.timelines.published import PUBLISHED
from testbed.core.device.timelines.timeline import Timeline
from testbed.core.device.timelines.timeline_library import MEASURED_PRECISIONS, batch_sizes, measured, models, shape_of
from testbed.core.errors import InputError
from testbed.core.models.catalogue import MODEL_NAMES
from tests.unit.core.device.replays import REPLAY, replay

LARGEST = [
    (model, precision, max(sizes))
    for model in models("h200")
    for precision in MEASURED_PRECISIONS
    if (sizes := batch_sizes("h200", model, precision))
]
LATE_S = 0.005


def ready_s(profile: Profile) -> list[float]:
    """Return when each gradient is ready, in the order of backward."""
    found, now_s = list[float](), 0.0
    for layer in reversed(profile.layers):
        for _, seconds in layer.gradients if layer.parameters else ():
            now_s += seconds
            found.append(now_s)
    return found


def by_shape(timeline: Timeline) -> dict[tuple[int, ...], list[float]]:
    """Return the times of the gradients of each shape, in the order of backward."""
    found: dict[tuple[int, ...], list[float]] = {}
    for _, shape, at_s in timeline.gradient_ready_s:
        found.setdefault(tuple(sorted(shape)), []).append(at_s)
    return found


def test_sixteen_models_were_measured_and_all_are_replayed() -> None:
    assert len(models("h200")) == 16
    assert set(models("h200")) <= set(MODEL_NAMES)


@pytest.mark.parametrize(("model", "precision", "batch_size"), LARGEST)
def test_a_profile_has_the_phases_and_gradients_of_the_measurement(model: str, precision: str, batch_size: int) -> None:
    timeline = measured("h200", model, precision, batch_size)
    cpu = replay(model, batch_size)
    found = Measured(accelerator="h200", precision=precision).profile(cpu)
    assert (found.forward_s, found.backward_s) == (timeline.phases_s.forward, timeline.phases_s.backward)
    assert found.optimizer_s == timeline.phases_s.optimizer
    assert (found.basis, found.assumed, found.codec) == (MEASURED, False, cpu.codec)
    assert sum(layer.forward_s for layer in found.layers) == pytest.approx(found.forward_s)
    shapes = [tuple(sorted(t.shape)) for layer in reversed(cpu.layers) for t in reversed(layer.tensors)]
    wanted = by_shape(timeline.without_hooks())
    for shape, at_s in zip(shapes, ready_s(found), strict=True):
        expected_s = wanted[shape].pop(0)
        if expected_s > LATE_S:
            assert at_s == pytest.approx(expected_s, rel=0.02)
    assert not any(wanted.values())


def test_half_of_resnet_50s_gradients_are_ready_after_a_twelfth_of_backward() -> None:
    found = Measured(accelerator="h200").profile(replay("resnet50", 64))
    total = sum(layer.parameters for layer in found.layers)
    assert found.ready_s(total // 2) / found.backward_s == pytest.approx(0.08, abs=0.01)
    assert found.ready_s(total) <= found.backward_s
    assert found.needed_s(total) == 0


def test_a_scaled_replay_has_the_times_of_the_whole_model() -> None:
    whole, small = (Measured(accelerator="h200").profile(replay("vgg16", 64, scale=scale)) for scale in (1, 100))
    assert ready_s(whole) == ready_s(small)
    assert small.layers[0].tensors[0].elements < whole.layers[0].tensors[0].elements


def test_batches_between_two_measured_ones_are_interpolated_and_marked() -> None:
    found = Measured(accelerator="h200").profile(replay("resnet50", 96))
    low, high = (measured("h200", "resnet50", "tf32", size) for size in (64, 128))
    assert found.backward_s == pytest.approx((low.phases_s.backward + high.phases_s.backward) / 2)
    assert found.unknowns == ("times of batches of 96 samples (interpolated between 64 and 128)",)


def test_what_the_host_limited_is_marked() -> None:
    (unknown,) = Measured(accelerator="h200").profile(replay("bert-large", 32)).unknowns
    assert "if the host does not limit the device" in unknown
    assert Measured(accelerator="h200").profile(replay("resnet50", 128)).unknowns == ()


@pytest.mark.parametrize(
    ("params", "batch_size", "precision", "fault"),
    [
        ({"model": "resnet50"}, 16, "tf32", r"batch_size=16: .* 32 to 128 \(32, 64, 128 measured"),
        ({"model": "vit-l"}, 33, "tf32", r"batch_size=33: .* for batches of 32 alone"),
        ({"model": "alexnet"}, 32, "tf32", "model=alexnet: h200 has no timeline of it; it has bert-base"),
        ({"model": "vgg16"}, 64, "bf16", "precision=bf16: h200 has vgg16 in tf32 alone; in bf16 it has bert-large"),
        ({"model": "bert-base", "tokens": 64}, 64, "tf32", "of 128 tokens, not 64 tokens; leave out workload.tokens"),
    ],
)
def test_what_was_not_measured_is_refused_with_what_was(
    params: dict[str, Any], batch_size: int, precision: str, fault: str
) -> None:
    device = Measured(accelerator="h200", precision=precision)
    (found,) = device.validate_training(REPLAY, params, batch_size)
    assert found.startswith("device=h200: ")
    with pytest.raises(InputError, match=fault):
        raise InputError(found)
    assert list(Measured(accelerator="h200").validate_training(REPLAY, {"model": "bert-base", "tokens": 128}, 64)) == []


def test_other_workloads_and_own_work_are_refused() -> None:
    (fault,) = Measured(accelerator="h200").validate_training("testbed.worker.workloads.digits.Digits", {}, 32)
    assert "not of this workload" in fault
    cpu = dataclasses.replace(replay("vgg16", 64), work=(WorkTimes(name="f", kind="factor", size=8, seconds=0.1),))
    with pytest.raises(InputError, match=r"1 pieces of the strategy's own work take .the first is f.; it has K-FAC's"):
        Measured(accelerator="h200").profile(cpu)
    with pytest.raises(InputError, match="the model that a transform leaves"):
        Measured(accelerator="h200").switched(cpu, cpu)


# Lengths of other devices.


def test_a_length_of_another_device_keeps_the_shape() -> None:
    shape = Measured(accelerator="h200").profile(replay("resnet50", 64))
    found = Measured(accelerator="h200", step_s="253 ms").profile(replay("resnet50", 64))
    assert found.forward_s + found.backward_s == pytest.approx(0.253)
    factor = found.backward_s / shape.backward_s
    assert ready_s(found) == pytest.approx([factor * at_s for at_s in ready_s(shape)])
    assert found.basis == SCALED
    assert found.unknowns[0].startswith(
        "when layers begin and gradients are ready on an unnamed device (scaled: the shape"
    )
    # of a batch that was not measured, the nearest one's shape
    beyond = Measured(accelerator="h200", step_s=1.0).profile(replay("resnet50", 256))
    assert "in tf32 for batches of 128" in beyond.unknowns[0]


@pytest.mark.parametrize(
    ("source", "length"), [(name, one) for name, device in PUBLISHED.items() for one in device.lengths]
)
def test_a_published_device_has_the_length_of_its_source(source: str, length: Any) -> None:
    tokens = int(length.sample.split()[0]) if length.sample else None
    found = Published(source=source).profile(replay(length.model, length.batch_size, tokens=tokens))
    passes_s = found.forward_s + found.backward_s
    assert passes_s + length.has_optimizer * found.optimizer_s == pytest.approx(length.seconds)
    assert found.basis == SCALED
    assert length.source in found.unknowns[0]
    assert found.provenance["measured_on"] == PUBLISHED[source].device


def test_the_lengths_of_dear_are_those_of_its_laboratory() -> None:
    lengths = {(one.model, one.batch_size): one.seconds for one in PUBLISHED["dear"].lengths}
    assert lengths["resnet50", 64] == pytest.approx(0.253, abs=5e-4)
    assert lengths["bert-base", 64] == pytest.approx(0.301, abs=5e-4)
    assert "an unnamed device" in Published(source="dear").profile(replay("resnet50", 64)).unknowns[0]
    _, sample, _ = Published(source="dear").profile(replay("bert-base", 64)).unknowns
    assert sample == "how long a step of samples of 128 tokens is (the published length is of 64 tokens)"


def test_lengths_that_nobody_published_are_refused_with_those_that_are() -> None:
    with pytest.raises(InputError, match="of resnet50 with batch_size=32; there are resnet50 with batch_size=64, bert"):
        Published(source="dear").profile(replay("resnet50", 32))
    with pytest.raises(InputError, match="model=alexnet"):
        shape_of("h200", "alexnet", "tf32", 32)


# Timelines of users.


def test_a_users_timeline_is_a_profile(tmp_path: Path) -> None:
    path = tmp_path / "mine.json"
    path.write_text(json.dumps(measured("h200", "resnet18", "tf32", 128).to_json()))
    cpu = replay("resnet18", 128)
    found, known = Profiled(file=str(path)).profile(cpu), Measured(accelerator="h200").profile(cpu)
    assert (found.layers, found.backward_s, found.codec) == (known.layers, known.backward_s, cpu.codec)
    with pytest.raises(InputError, match=r"mine\.json: its timeline is of batches of 128 samples, not 64"):
        Profiled(file=str(path)).profile(replay("resnet18", 64))


def test_a_users_timeline_without_a_layer_or_of_another_shape_is_refused_with_the_layer(tmp_path: Path) -> None:
    path, data = tmp_path / "mine.json", measured("h200", "resnet18", "tf32", 128).to_json()
    rows = list(data["gradient_ready_s"])
    index = next(number for number, (name, *_) in enumerate(rows) if name == "layer3.1.conv2.weight")
    for changed, fault in (
        (
            [*rows[:index], *rows[index + 1 :]],
            r"no gradient of the model's layers\.\d+ has one of shape 256 x 256 x 3 x 3",
        ),
        (
            [*rows[:index], (rows[index][0], (256, 256, 1, 1), rows[index][2]), *rows[index + 1 :]],
            "is of shape 256 x 256 x 1 x 1",
        ),
        ([*rows, ("layer3.1.conv2.gate", (7,), rows[-1][2])], "layer3.1.conv2.gate: the model has no such gradient"),
    ):
        path.write_text(json.dumps({**data, "gradient_ready_s": changed}))
        with pytest.raises(InputError, match=fault):
            Profiled(file=str(path)).profile(replay("resnet18", 128))
    assert math.isfinite(rows[-1][2])
