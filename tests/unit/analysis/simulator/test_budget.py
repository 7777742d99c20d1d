"""The least links for a step time, against what can be worked out by hand: two workers, one bucket, no computing."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest

from testbed.analysis.simulator import calibration
from testbed.analysis.simulator.budget import Errors, answer
from testbed.analysis.simulator.calibration import Calibration
from testbed.analysis.simulator.least_links import Targets, least_rate, rates, round_trips
from testbed.analysis.simulator.model.constants import IDEAL
from testbed.analysis.simulator.validation import Validation, traits
from testbed.core.device.codecs.work import CodecTimes
from testbed.core.device.profile import Collective, LayerTimes, Profile
from testbed.core.errors import InputError
from testbed.core.spec.paths import WIRE_RATIO
from testbed.core.spec.run_spec import Part, RunSpec
from testbed.core.spec.topology import Topology
from topologies import hierarchical, lan, two_regions

ELEMENTS = 250_000
SIZE_BYTES = 4 * ELEMENTS
GRID = 1.0125
"""From one rate to the next, rounded figures included."""
TARGET_S = 0.4


def spec(topology: Topology | None = None, **given: Any) -> RunSpec:
    part = Part("none", "compressors.none.Uncompressed")
    defaults: dict[str, Any] = {
        "topology": topology or two_regions.build(workers=2, lan_rate="30 Gbit/s"),
        "workload": Part("w", "w.W"),
        "strategy": Part("ddp", "testbed.worker.strategies.ddp.DDP", {"bucket_size": "4 MiB"}),
        "compressor": part,
        "device": Part("native", "testbed.core.device.Native"),
        "steps": 1,
        "tcp": "stock",
    }
    return RunSpec(**(defaults | given))


def profile(compute_s: float = 0.0) -> dict[str, Any]:
    found = Profile(
        workload="w",
        compressor="c",
        batch_size=1,
        layers=(LayerTimes(name="a", parameters=ELEMENTS, forward_s=0.0, backward_s=0.0),),
        forward_s=compute_s,
        backward_s=0.0,
        optimizer_s=0.0,
        codec=(CodecTimes(elements=ELEMENTS, rounds=(("compress", 0.0), ("decompress", 0.0))),),
        buckets=(ELEMENTS,),
        collectives=(Collective(kind="all_reduce", size_bytes=SIZE_BYTES),),
    ).to_json()
    return {"cpu": found, "device": found}


def asked(*compute_s: float, rtts_s: tuple[float, ...] = (0.05,), of: RunSpec | None = None) -> dict[str, Any]:
    pair = {
        "spec": (of or spec()).to_json(),
        "profiles": [profile(one) for one in compute_s],
        "rtts_s": list(rtts_s),
        "rates_bit_s": [None] * len(rtts_s),
    }
    return {"target_step_s": TARGET_S, "pairs": [pair]}


@pytest.fixture
def ideal(tmp_path: Path) -> Path:
    """An ideal network, validated on nothing."""
    path = tmp_path / "ideal.json"
    calibration.write(path, Calibration(IDEAL))
    return path


def found(question: dict[str, Any], path: Path) -> dict[str, Any]:
    (one,) = answer(question, path)["pairs"]
    assert isinstance(one, dict)
    return one


def least_bit_s(rtt_s: float, compute_s: float = 0.0, target_s: float = TARGET_S) -> float:
    """A step is computing, two round trips and the bucket's bytes."""
    return 8 * WIRE_RATIO * SIZE_BYTES / (target_s - 2 * rtt_s - compute_s)


def test_the_least_rate_is_what_the_bytes_need_in_the_time_that_round_trips_leave(ideal: Path) -> None:
    near, far, too_far = found(asked(0.0, rtts_s=(0.05, 0.15, 0.25)), ideal)["points"]
    for point, rtt_s in ((near, 0.05), (far, 0.15)):
        rate = point["rate_bit_s"]
        assert 1 <= rate["estimate"] / least_bit_s(rtt_s) <= GRID
        assert rate["low"] == rate["estimate"] == rate["high"]
        assert TARGET_S / GRID <= point["step_s"]["estimate"] <= TARGET_S
    assert too_far["rate_bit_s"] == {"estimate": None, "low": None, "high": None}
    assert too_far["step_s"]["estimate"] == pytest.approx(0.5, rel=1e-2)
    assert "round trips" in too_far["bound_by"]


def test_the_longest_round_trip_leaves_no_time_for_bytes(ideal: Path) -> None:
    rtt = found(asked(0.1), ideal)["longest_rtt_s"]
    assert 1 / GRID**2 <= rtt["estimate"] / ((TARGET_S - 0.1) / 2) <= 1
    nowhere = found(asked(0.5), ideal)
    assert nowhere["longest_rtt_s"] == {"estimate": None, "low": None, "high": None}
    assert nowhere["points"][0]["rate_bit_s"]["estimate"] is None
    assert nowhere["points"][0]["bound_by"] != "round trips" and nowhere["compute_s"]["estimate"] == 0.5


def test_ranges_take_in_all_measurements_of_computing(ideal: Path) -> None:
    one = found(asked(0.05, 0.01, 0.1), ideal)
    rate, rtt = one["points"][0]["rate_bit_s"], one["longest_rtt_s"]
    for end, compute_s in (("low", 0.01), ("estimate", 0.05), ("high", 0.1)):
        assert 1 <= rate[end] / least_bit_s(0.05, compute_s) <= GRID
        assert one["compute_s"][end] == compute_s
    assert rtt["low"] < rtt["estimate"] < rtt["high"]


def test_ranges_take_in_how_far_predictions_were_off(tmp_path: Path) -> None:
    errors = (-0.1, 0.0, 0.2)
    path = tmp_path / "validated.json"
    known = Validation(errors, (traits(spec()),) * 3, (0.0, 0.02, 0.02))
    calibration.write(path, Calibration(IDEAL, known))
    whole = answer(asked(0.0), path)
    assert whole["validation"]["covered"] == 0.5 and whole["validation"]["step_errors"] == {"low": -0.1, "high": 0.2}
    (one,) = whole["pairs"]
    off, rate = Errors.of(errors), one["points"][0]["rate_bit_s"]
    assert (off.low, off.high) == (-0.1, 0.2)
    # a prediction that is too short by its error asks for a faster link
    assert 1 <= rate["high"] / least_bit_s(0.05, target_s=TARGET_S * (1 + off.low)) <= GRID
    assert 1 <= rate["low"] / least_bit_s(0.05, target_s=TARGET_S * (1 + off.high)) <= GRID
    sent = one["points"][0]["wan_bytes_step"]
    assert sent["low"] == pytest.approx(sent["estimate"] / 1.02, rel=1e-3) and sent["low"] < sent["high"]


def test_at_a_rate_that_is_given_the_step_is_told_and_the_range_takes_it_in(ideal: Path) -> None:
    question, given_bit_s = asked(0.0), 2 * least_bit_s(0.05)
    question["pairs"][0]["rates_bit_s"] = [given_bit_s]
    (point,) = found(question, ideal)["points"]
    assert point["rate_bit_s"]["estimate"] == point["rate_bit_s"]["high"] == given_bit_s
    assert 1 <= point["rate_bit_s"]["low"] / least_bit_s(0.05) <= GRID
    assert point["step_s"]["estimate"] == pytest.approx(0.1 + 0.3 / 2, rel=1e-3)


def test_a_possible_link_may_be_none_for_certain(tmp_path: Path) -> None:
    path = tmp_path / "validated.json"
    calibration.write(path, Calibration(IDEAL, Validation((-0.3, 0.3), (traits(spec()),) * 2)))
    rate = found(asked(0.0, rtts_s=(0.16,)), path)["points"][0]["rate_bit_s"]
    assert rate["low"] < rate["estimate"] and rate["high"] is None


def test_what_cannot_be_is_refused_by_name_before_anything_is_measured() -> None:
    diloco = Part("diloco", "testbed.worker.strategies.diloco.DiLoCo")
    by_times = Part("ddp", "testbed.worker.strategies.ddp.DDP", {"fusion": "mg_wfbp"})
    for of, said in (
        (spec(strategy=diloco), "strategy=diloco: cannot be simulated"),
        (spec(strategy=by_times), "strategy.fusion=mg_wfbp"),
        (spec(scale=4.0), "workload.scale=4"),
        (spec(lan.build(workers=2)), "topo=lan: it has no WAN link"),
        (spec(hierarchical.build(workers=4)), "its WAN links differ"),
    ):
        (one,) = answer(asked(of=of))["pairs"]
        (line,) = one["refused"]
        assert said in line
    (fine,) = answer(asked(of=spec()))["pairs"]
    assert fine == {"refused": []}


def test_a_question_that_is_none_is_refused() -> None:
    with pytest.raises(InputError, match="not what is asked of a budget: KeyError"):
        answer({"target_step_s": 1})


def test_the_grid_is_of_round_figures_that_a_run_can_ask_for() -> None:
    for grid in (rates(), round_trips()):
        assert grid == sorted(set(grid)) and all(float(f"{value:.3g}") == value for value in grid)
        assert max(b / a for a, b in itertools.pairwise(grid)) <= 1.02
    assert least_rate([lambda _: 0.1], Targets(0.2, 0.2, 0.2)).estimate == rates()[0]
