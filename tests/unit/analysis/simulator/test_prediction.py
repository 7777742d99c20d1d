"""What a prediction says of itself; constants found again."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from testbed.analysis.simulator import calibration
from testbed.analysis.simulator.calibration import Calibration, Emulated, fit
from testbed.analysis.simulator.model.constants import Constants
from testbed.analysis.simulator.model.network import Network
from testbed.analysis.simulator.model.step_plan import BucketPlan, StepPlan
from testbed.analysis.simulator.model.traffic import traffic
from testbed.analysis.simulator.predict_command import answer, text
from testbed.analysis.simulator.timeline.steps import follow
from testbed.analysis.simulator.validation import Standing, Validation, traits
from testbed.core.device.profile import Collective
from testbed.core.errors import InputError
from testbed.core.spec.run_spec import Part
from testbed.core.spec.schedule import Change
from tests.unit.analysis.simulator.model.invented import profile, spec
from topologies import two_regions

KNOWN = Constants(goodput=0.95, message_s=5e-4, acknowledged=0.004, message_bytes=250.0)


def emulated(workers: int, size: int, *, rate: str = "100 Mbit/s") -> Emulated:
    """What a network with the known constants would give."""
    topology = two_regions.build(workers=workers, rate=rate, rtt="20 ms")
    one = BucketPlan(size // 4, 0.0, (Collective(kind="all_reduce", size_bytes=size),), (0.0, 0.0))
    step = StepPlan(before_s=0.01, backward_s=0.0, after_s=0.0, buckets=(one,), algorithm="gloo")
    asked = dataclasses.replace(spec(workers=workers), topology=topology)
    step_s = follow(step, Network(topology, KNOWN, tcp=asked.tcp)).step_s
    sent = traffic(step, topology, KNOWN)
    return Emulated(asked, step, step_s, sent.payload_bytes, sent.wan_wire_bytes)


@pytest.mark.tier("all")
def test_constants_are_found_again() -> None:
    runs = [emulated(2, 8_000_000), emulated(4, 2_000_000), emulated(6, 4_000), emulated(4, 1_000_000, rate="1 Gbit/s")]
    found = fit(runs)
    assert found.goodput == pytest.approx(KNOWN.goodput)
    assert found.message_s == pytest.approx(KNOWN.message_s)
    assert found.acknowledged == pytest.approx(KNOWN.acknowledged, rel=1e-3)
    assert found.message_bytes == pytest.approx(KNOWN.message_bytes, rel=1e-3)
    assert [run.error(found) for run in runs] == pytest.approx([0.0] * 4, abs=1e-9)


def test_a_prediction_says_how_it_differs_from_what_was_validated() -> None:
    known = Validation((0.01, -0.03, 0.02), (traits(spec()), traits(spec(workers=8)), traits(spec(workers=4))))
    (inside,) = Standing.of(spec(workers=6), known).lines()
    assert inside == (
        "validated on 3 emulated configurations: median error 2.0%, worst 3.0%; this prediction is inside that range"
    )
    outside = Standing.of(spec(workers=64, compressor=Part("topk", "compressors.topk.TopK")), known)
    assert outside.lines()[1:] == ["  compressor topk (validated: none)", "  workers 64 (validated: 2 to 8)"]
    assert outside.to_json()["inside"] is False


def test_without_a_calibration_nothing_was_validated() -> None:
    assert Standing.of(spec(), None).lines() == ["validated on nothing: there is no calibration"]
    assert Standing.of(spec(), None).to_json()["inside"] is False


def question(**given: Any) -> dict[str, Any]:
    both = profile(500, 2000, 300).to_json()
    return {"spec": spec(**given).to_json(), "cpu": both, "device": both}


def test_what_cannot_be_simulated_is_refused(tmp_path: Path) -> None:
    link = spec().topology.wan_links[0]
    change = Change(t_s=1.0, kind="set", link=link.name, values={"rate_bit_s": 1e6})
    with pytest.raises(InputError, match="events: the simulator knows no changes of links"):
        answer(question(events=(change,)))
    with pytest.raises(InputError, match="not a spec with its profiles"):
        answer({"spec": {}})
    with pytest.raises(InputError, match=r"calibration .*nothing\.json"):
        answer(question(), tmp_path / "nothing.json")


def test_simulated_is_said_wherever_a_prediction_is_shown(tmp_path: Path) -> None:
    file = tmp_path / "calibration.json"
    calibration.write(file, Calibration(KNOWN, Validation((0.02,), (traits(spec()),)), {"machine": "a test"}))
    found = answer(question(), file)
    assert found.constants == KNOWN
    assert "(simulated)" in text(found).splitlines()[0]
    assert found.to_json()["kind"] == "simulated"
    assert found.to_json()["validation"]["worst_error"] == 0.02


def test_the_command_reads_standard_input_and_prints_json() -> None:
    command = [sys.executable, "-m", "testbed.analysis", "predict", "--json", "-"]
    done = subprocess.run(command, input=json.dumps(question()), capture_output=True, text=True, check=True)
    said = json.loads(done.stdout)
    assert said["payload_bytes_step"] == said["dense_bytes_step"] == 2 * 4 * 2800
    assert said["step_s"] == pytest.approx(said["compute_s"] + said["exposed_communication_s"], rel=1e-6)
