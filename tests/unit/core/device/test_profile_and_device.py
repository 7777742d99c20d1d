from __future__ import annotations

import dataclasses
import json
import math
from pathlib import Path

import pytest

from testbed.core.device import Native, Paced, Profiled
from testbed.core.device.codecs.work import CodecTimes
from testbed.core.device.profile import LayerTimes, Profile, WorkTimes, read_profile
from testbed.core.errors import InputError


def layer(name: str, parameters: int, flop: float = 0.0, seconds: float = 0.001) -> LayerTimes:
    return LayerTimes(name=name, parameters=parameters, forward_s=seconds, backward_s=2 * seconds, forward_flop=flop)


def profile(**given: object) -> Profile:
    fields: dict[str, object] = {
        "workload": "w {}",
        "compressor": "c {}",
        "batch_size": 8,
        "layers": (layer("in", 0, 1.0), layer("a", 100, 2.0), layer("relu", 0, 1.0), layer("b", 300, 4.0)),
        "forward_s": 0.004,
        "backward_s": 0.008,
        "optimizer_s": 0.001,
        "other_s": 0.0005,
        "codec": (
            CodecTimes(elements=100, rounds=(("compress", 0.01), ("decompress", 0.02))),
            CodecTimes(elements=300, rounds=(("compress", 0.03), ("decompress", 0.02))),
        ),
        "buckets": (100, 300),
        "cpu_step_s": 0.0935,
    }
    return Profile(**{**fields, **given})  # type: ignore[arg-type]


def test_a_step_is_the_sum_of_its_parts() -> None:
    assert profile().codec_step_s == pytest.approx(0.08)
    assert profile().step_s == pytest.approx(0.0935)


@pytest.mark.parametrize(
    ("elements", "round_", "seconds"),
    [(100, 0, 0.01), (200, 0, 0.02), (300, 0, 0.03), (600, 0, 0.06), (50, 0, 0.01), (200, 1, 0.02), (100, 2, 0.0)],
)
def test_codec_times_lie_between_the_sizes_measured(elements: int, round_: int, seconds: float) -> None:
    assert profile().codec_s(elements, round_) == pytest.approx(seconds)


def test_buckets_of_one_size_each_take_their_time_and_sizes_without_a_bucket_none() -> None:
    assert profile(buckets=(100, 100, 100)).codec_step_s == pytest.approx(0.09)
    assert profile(buckets=()).codec_step_s == 0.0


def test_a_model_may_be_of_another_measurement_of_the_same_layers() -> None:
    slower = profile(
        layers=tuple(dataclasses.replace(one, forward_s=1.5 * one.forward_s) for one in profile().layers),
        forward_s=0.006,
        backward_s=0.012,
        compressor="d {}",
        cpu_step_s=0.2,
    )
    taken = profile().with_model_of(slower)
    assert (taken.layers, taken.forward_s, taken.backward_s) == (slower.layers, 0.006, 0.012)
    assert (taken.compressor, taken.codec, taken.cpu_step_s) == ("c {}", profile().codec, 0.0935)
    switched = profile(switched=profile()).with_model_of(dataclasses.replace(slower, switched=slower))
    assert switched.switched == taken
    other = profile(layers=(layer("a", 100, 2.0),))
    assert profile().with_model_of(other) == profile(), "of other layers nothing is taken"


def test_without_a_codec_nothing_takes_time() -> None:
    assert profile(codec=()).codec_s(100, 0) == 0.0


def test_a_profile_comes_back_from_json(tmp_path: Path) -> None:
    path = tmp_path / "p.json"
    path.write_text(json.dumps(profile().to_json()))
    assert read_profile(path) == profile()


@pytest.mark.parametrize("text", ["", "{}", '{"schema_version": 1}', '{"schema_version": 2}', "[]"])
def test_what_is_no_profile_is_refused_by_its_path(tmp_path: Path, text: str) -> None:
    path = tmp_path / "p.json"
    path.write_text(text)
    with pytest.raises(InputError, match=r"p\.json"):
        read_profile(path)


def test_native_takes_what_this_machine_takes() -> None:
    assert Native().profile(profile()) == profile()


def test_paced_splits_a_step_by_flop_and_keeps_its_sum() -> None:
    device = Paced(step_s="240 ms").profile(profile())
    assert device.assumed
    assert device.forward_s == pytest.approx(0.08)
    assert device.backward_s == pytest.approx(0.16)
    assert [one.forward_s for one in device.layers] == pytest.approx([0.01, 0.02, 0.01, 0.04])
    # backward of "relu" comes before that of "a", which has the parameters; that of "in" is for nothing to wait for
    assert [one.backward_s for one in device.layers] == pytest.approx([0.0, 0.06, 0.0, 0.08])
    assert device.optimizer_s == device.other_s == 0
    assert device.codec == profile().codec
    assert device.cpu_step_s == profile().cpu_step_s


def test_paced_without_flop_splits_by_parameters() -> None:
    flat = tuple(dataclasses.replace(one, forward_flop=0.0) for one in profile().layers)
    device = Paced(step_s=3.0, codec_speedup=10).profile(profile(layers=flat))
    assert [one.forward_s for one in device.layers] == pytest.approx([0.0, 0.25, 0.0, 0.75])
    assert device.codec_s(100, 0) == pytest.approx(0.001)


@pytest.mark.parametrize("step_s", [0, -1, "3", "fast", True, None])
def test_paced_refuses_what_is_no_time(step_s: object) -> None:
    with pytest.raises(ValueError, match="step_s="):
        Paced(step_s=step_s)  # type: ignore[arg-type]


def test_a_measured_profile_keeps_its_layers_and_the_work_of_this_machine(tmp_path: Path) -> None:
    path = tmp_path / "gpu.json"
    path.write_text(json.dumps(profile(forward_s=0.1, cpu_step_s=0.0).to_json()))
    device = Profiled(file=str(path)).profile(profile())
    assert device.forward_s == 0.1
    assert device.cpu_step_s == profile().cpu_step_s
    apart = profile(buckets=(100,), codec=(CodecTimes(elements=100, rounds=(("compress", 1.0),)),))
    assert Profiled(file=str(path)).profile(apart).codec_s(100, 0) == 1.0, "another step's codec is not taken"
    other = profile(compressor="other {}", codec=(CodecTimes(elements=1, rounds=(("compress", 1.0),)),))
    assert Profiled(file=str(path), codec_speedup=4).profile(other).codec_s(1, 0) == 0.25


def test_a_profile_of_another_training_is_refused_with_all_reasons(tmp_path: Path) -> None:
    path = tmp_path / "gpu.json"
    path.write_text(json.dumps(profile().to_json()))
    asked = profile(workload="v {}", batch_size=16, layers=(layer("a", 7),))
    with pytest.raises(InputError) as caught:
        Profiled(file=str(path)).profile(asked)
    assert len(caught.value.faults) == 3
    assert "a has 100 parameters, not 7" in caught.value.faults[2]


def test_a_missing_profile_is_a_fault_before_anything_is_built(tmp_path: Path) -> None:
    missing = tmp_path / "no.json"
    assert list(Profiled(file=str(missing)).validate()) == [f"device.file={missing}: no such file"]


WORK = (
    WorkTimes(name="small", kind="inverse", size=10, seconds=0.0, flop=1e3),
    WorkTimes(name="large", kind="inverse", size=20, seconds=0.0, flop=8e3),
    WorkTimes(name="factor", kind="factor", size=20, seconds=0.0, flop=4e3),
)


def test_a_paced_devices_work_takes_what_it_is_given_or_goes_at_the_rate_of_its_layers() -> None:
    cpu = profile(work=WORK)
    step_s = 0.024  # of which forward's 8 FLOPs take a third: 1000 a second
    assert [piece.seconds for piece in Paced(step_s=step_s).profile(cpu).work] == pytest.approx([1, 8, 4])
    shared = Paced(step_s=step_s, work_s={"inverse": 0.3}).profile(cpu).work
    assert [piece.seconds for piece in shared] == pytest.approx([0.3 / 9, 0.8 / 3, 4])
    by_size = Paced(step_s=step_s, work_s={"inverse": "300 ms"}, growth={"inverse": math.log(2) / 10}).profile(cpu).work
    assert [piece.seconds for piece in by_size] == pytest.approx([0.1, 0.2, 4])


def test_seconds_of_work_that_is_not_there_are_refused() -> None:
    cpu = profile(work=WORK)
    with pytest.raises(InputError, match=r"device\.work_s\.other=1: the strategy's work is factor, inverse"):
        Paced(step_s=1, work_s={"other": 1}).profile(cpu)
    with pytest.raises(ValueError, match=r"growth\.inverse=1: work_s\.inverse is not set; set it"):
        Paced(step_s=1, growth={"inverse": 1})
    with pytest.raises(ValueError, match=r"work_s\.inverse=0"):
        Paced(step_s=1, work_s={"inverse": 0})


def test_a_changed_model_that_was_measured_keeps_the_codec_of_its_file(tmp_path: Path) -> None:
    slow = profile(codec=(CodecTimes(elements=100, rounds=(("compress", 5.0),)),))
    path = tmp_path / "board.json"
    path.write_text(json.dumps(profile(switched=slow).to_json()))
    cpu = profile(switched=profile(cpu_step_s=0.2))
    then = Profiled(file=str(path)).whole_profile(cpu).switched
    assert then is not None
    assert (then.codec_s(100, 0), then.cpu_step_s) == (5.0, 0.2)
    others = dataclasses.replace(cpu, switched=profile(compressor="d {}"))
    then = Profiled(file=str(path)).whole_profile(others).switched
    assert then is not None and then.codec_s(100, 0) == 0.01, "that of another compressor is not taken"


def test_the_work_of_a_changed_model_goes_by_ratios_and_stays_assumed_where_it_was(tmp_path: Path) -> None:
    def working(seconds: float, **given: object) -> Profile:
        return profile(work=(WorkTimes(name="factor a", kind="factor", size=4, seconds=seconds, flop=1.0),), **given)

    path = tmp_path / "board.json"
    path.write_text(json.dumps(working(8.0, assumed=True, basis="assumed").to_json()))
    changed = working(0.5, workload="w2 {}")
    then = Profiled(file=str(path)).whole_profile(dataclasses.replace(working(1.0), switched=changed)).switched
    assert then is not None
    assert [piece.seconds for piece in then.work] == [4.0]
    assert (then.assumed, then.basis) == (True, "assumed")
