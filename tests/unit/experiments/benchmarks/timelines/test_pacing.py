"""One paced worker follows the measured timelines, in a time that is told: nothing else takes any."""

from __future__ import annotations

import pytest

from experiments.benchmarks.timelines import measure
from testbed.worker.device import clock as clock_module
from tests.unit.fake_time import FakeTime

QUICK = (("resnet50", "tf32"), ("bert-large", "bf16"), ("densenet121", "tf32"))
CLOCKS = [tuple(one.asked.values())[:2] for one in measure.points(quick=False) if one.asked["where"] == "clock"]


@pytest.fixture(autouse=True)
def _time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clock_module, "time", FakeTime())
    monkeypatch.setattr(clock_module.codec_process, "cpu_s", lambda: 0.0)


def _follows(model: str, precision: str) -> None:
    found = measure.measure(model, precision, "clock")
    for phase in measure.PHASES:
        assert found["measured"][phase] == pytest.approx(found["wanted"][phase], rel=1e-6)
    assert found["beyond"] == 0
    assert abs(found["worst_error"]) < 0.02


@pytest.mark.parametrize(("model", "precision"), QUICK)
def test_phases_and_gradients_are_those_of_the_accelerator(model: str, precision: str) -> None:
    _follows(model, precision)


@pytest.mark.tier("all")
@pytest.mark.parametrize(("model", "precision"), [one for one in CLOCKS if one not in QUICK])
def test_all_models_follow_their_accelerator(model: str, precision: str) -> None:
    _follows(model, precision)
