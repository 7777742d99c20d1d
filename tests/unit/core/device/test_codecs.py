"""Times of codecs that were measured on an accelerator: what a bucket takes, what is refused, what is marked."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from testbed.core.device import Measured, Paced, Profiled, Published
from testbed.core.device.codecs.library import CODECS, CPU, codec_library
from testbed.core.device.codecs.work import CodecTimes, CodecWork
from testbed.core.device.profile import Profile
from testbed.core.errors import InputError
from testbed.core.spec.run_spec import Part
from tests.unit.core.device.replays import replay

H200 = codec_library("h200")
TOPK = "compressors.topk.TopK"
N = H200.elements


def training(compressor: str = TOPK, elements: int = N, scale: float = 1, **params: Any) -> Profile:
    """Return the profile of a training that encodes each bucket once and decodes what four ranks sent."""
    work = (CodecWork(encodes=1, encoded=elements), CodecWork(decodes=4, decoded=4 * elements))
    rounds = (("compress", 9.0), ("decompress", 9.0))
    return dataclasses.replace(
        replay("resnet50", 64, scale=scale),
        compressor=f"{compressor} {json.dumps({'density': 0.01, 'feedback': 'auto', **params})}",
        codec=(CodecTimes(elements=elements, rounds=rounds, work=work),),
        buckets=(elements,),
    )


def seconds(profile: Profile) -> list[float]:
    return [taken_s for _, taken_s in profile.codec[0].rounds]


@pytest.mark.parametrize("name", [name for name in CODECS if name != CPU])
def test_no_codec_is_said_to_launch_for_longer_than_it_took(name: str) -> None:
    library = codec_library(name)
    assert len({one.name for one in library.codecs}) == len(library.codecs) > 30
    for one in library.codecs:
        assert one.encode_operations * library.launch_s <= one.encode_s * (1 + 1e-6), one.name
        assert one.decode_operations * library.launch_s <= one.decode_s * (1 + 1e-6), one.name


def test_a_bucket_of_the_measured_size_takes_the_measured_time() -> None:
    found = Measured(accelerator="h200", codecs="h200").profile(training())
    topk = H200.find(TOPK, {"density": 0.01}, "")
    assert seconds(found) == pytest.approx([topk.encode_s, 4 * topk.decode_s])
    assert found.codec_s(N, 0) == pytest.approx(topk.encode_s)
    assert found.provenance["codec"]["measured_on"] == "NVIDIA H200"
    assert found.unknowns[-1].startswith("how long topk takes for other than 25,000,000 elements")


def test_small_buckets_take_what_launching_takes() -> None:
    topk = H200.find(TOPK, {"density": 0.01}, "")
    least_s = topk.encode_operations * H200.launch_s
    many, half = (Measured(accelerator="h200", codecs="h200").profile(training(elements=n)) for n in (1000, N // 2))
    assert seconds(many)[0] == pytest.approx(least_s, rel=1e-3)
    assert seconds(half)[0] == pytest.approx((least_s + topk.encode_s) / 2)


def test_operations_besides_go_at_the_rate_of_a_copy() -> None:
    none = H200.find("compressors.none.Uncompressed", {}, "")
    assert H200.seconds(none, CodecWork(operations=1, operation_bytes=8 * N)) == pytest.approx(H200.copy_s)
    assert H200.seconds(none, CodecWork(operations=3)) == pytest.approx(3 * H200.launch_s)


def test_a_scaled_replay_compresses_the_whole_model() -> None:
    small = training(elements=N // 20, scale=20)
    whole = Measured(accelerator="h200", codecs="h200").profile(training())
    assert seconds(Measured(accelerator="h200", codecs="h200").profile(small)) == pytest.approx(
        seconds(whole), rel=0.02
    )


def test_a_codec_on_a_core_takes_as_many_times_longer_as_a_scaled_replay_is_smaller() -> None:
    whole, small = (Paced(step_s=0.1).profile(training(elements=N // scale, scale=scale)) for scale in (1, 20))
    assert seconds(whole) == [9.0, 9.0]
    assert seconds(small) == pytest.approx([180.0, 180.0], rel=0.02)
    faster = Paced(step_s=0.1, codec_speedup=20).profile(training(elements=N // 20, scale=20))
    assert seconds(faster) == pytest.approx([9.0, 9.0], rel=0.02)


def test_a_slower_device_compresses_more_slowly_and_says_so() -> None:
    plain = seconds(Measured(accelerator="h200", codecs="h200").profile(training()))
    dear = Published(source="dear", codecs="h200").profile(training())
    factor = dear.provenance["timeline"]["factor"]
    assert seconds(dear) == pytest.approx([factor * one for one in plain])
    assert dear.unknowns[-1].startswith(f"how fast the device compresses (taken to need {factor:.3g} times")
    faster = Paced(step_s=0.1, codecs="h200", codec_speedup=2).profile(training())
    assert seconds(faster) == pytest.approx([one / 2 for one in plain])


def test_a_profile_s_own_codec_gives_way_to_what_is_asked_for(tmp_path: Path) -> None:
    cpu, path = training(), tmp_path / "mine.json"
    path.write_text(json.dumps(cpu.to_json()))
    assert seconds(Profiled(file=str(path)).profile(cpu)) == [9.0, 9.0]
    measured = Measured(accelerator="h200", codecs="h200").profile(cpu)
    assert seconds(Profiled(file=str(path), codecs="h200").profile(cpu)) == seconds(measured)


def test_what_was_not_measured_is_refused_with_what_was() -> None:
    device = Paced(step_s=0.1, codecs="h200")
    with pytest.raises(InputError, match=r"topk was measured with compressor.density=0.01, not 0.2; use that, or"):
        device.profile(training(density=0.2))
    with pytest.raises(InputError, match=r"compressors.powersgd.PowerSGD was not measured on NVIDIA H200; .*topk"):
        device.profile(training("compressors.powersgd.PowerSGD"))
    assert list(device.validate_compressor("compressors.powersgd.PowerSGD", {"rank": 4}))
    assert not list(device.validate_compressor(TOPK, {"density": 0.01, "feedback": "off"}))
    assert not list(Paced(step_s=0.1).validate_compressor("compressors.powersgd.PowerSGD", {}))


def test_profiles_that_do_not_say_what_codecs_do_are_refused() -> None:
    old = dataclasses.replace(training(), codec=(CodecTimes(elements=N, rounds=(("compress", 1.0),)),))
    with pytest.raises(InputError, match="does not say what the codec does; measure it again"):
        Measured(accelerator="h200", codecs="h200").profile(old)


def test_counts_survive_json() -> None:
    assert Profile.from_json(json.loads(json.dumps(training().to_json()))).codec == training().codec


def test_specs_of_older_versions_keep_their_hashes() -> None:
    for kind in (Measured, Paced, Profiled, Published):
        target = f"testbed.core.device.{kind.__name__}"
        old, new = Part("d", target, {"a": 1}), Part("d", target, {"a": 1, "codecs": "cpu", "host_s": None})
        assert new.first_published() == old.first_published()
        assert Part("d", target, {"codecs": "h200"}).first_published()["params"] == {"codecs": "h200"}
