from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from testbed.core.device.factored_layer import FactoredLayer
from testbed.core.device.profile import LayerTimes, Profile
from testbed.core.spec.run_spec import RunSpec
from testbed.orchestrator.config.config import compose
from testbed.orchestrator.run.dilation import calibration

SPEC = compose(["topo=wan1g", "workers=8"])
PROFILE = Profile(
    workload="w",
    compressor="c",
    batch_size=1,
    layers=(LayerTimes(name="a", parameters=1000, forward_s=0.1, backward_s=0.2),),
    forward_s=0.1,
    backward_s=0.2,
    optimizer_s=0.0,
    cpu_step_s=0.3,
)
LAYER = FactoredLayer("a", 10, 10)


@pytest.fixture
def questions(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[dict[str, Any]]:
    """What the worker's side was asked; it answers with `PROFILE`, and nothing is kept from before."""
    asked: list[dict[str, Any]] = []

    def answer(command: str, question: dict[str, Any], *_: object) -> dict[str, Any]:
        asked.append(question)
        return {"faults": [], "cpu": question["cpu"] or PROFILE.to_json(), "device": PROFILE.to_json()}

    monkeypatch.setattr(calibration, "ask_worker", answer)
    monkeypatch.setattr(calibration, "CACHE", tmp_path / "profiles")
    monkeypatch.setattr(calibration, "held_if_free", lambda: contextlib.nullcontext(True))
    return asked


def test_an_edited_class_of_the_user_s_is_measured_again_and_its_model_is_not(
    questions: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text("A = 1\n")
    spec = compose(["topo=wan1g", "workers=8", "compressor._target_=mine.Mine"])
    for text in ("A = 1\n", "A = 2\n", "A = 2\n"):
        (tmp_path / "mine.py").write_text(text)
        calibrated(spec, [])
    assert [question["cpu"] is None for question in questions] == [True, True, False]
    assert [question["model"] is None for question in questions] == [True, False, True]


def test_what_is_measured_beside_another_run_is_not_kept(
    questions: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(calibration, "held_if_free", lambda: contextlib.nullcontext(False))
    told: list[str] = []
    calibrated(SPEC, told)
    calibrated(SPEC, told)
    assert [question["cpu"] is None for question in questions] == [True, True]
    assert len(told) == 2 and all("not kept: a run has the machine" in text for text in told)


def calibrated(spec: RunSpec, told: list[str] | None = None) -> tuple[RunSpec, calibration.Calibration | None]:
    return calibration.calibrate(spec, (told if told is not None else []).append)


def test_a_measurement_is_kept_and_taken_again(questions: list[dict[str, Any]]) -> None:
    told: list[str] = []
    first, found = calibrated(SPEC, told)
    again, _ = calibrated(SPEC, told)
    assert [question["cpu"] is None for question in questions] == [True, False]
    assert len(told) == 1
    assert first == again
    assert found is not None
    assert found.cpu == PROFILE


@pytest.mark.parametrize(
    "changed", ["compressor=topk", "batch_size=7", "workers=6", "topo.rtt='10 ms'", "steps=7", "epochs=3"]
)
def test_another_training_is_measured_anew(questions: list[dict[str, Any]], changed: str) -> None:
    calibrated(SPEC)
    calibrated(compose(["topo=wan1g", *(["workers=8"] if "workers" not in changed else []), changed]))
    assert [question["cpu"] is None for question in questions] == [True, True]


def test_compressors_of_a_training_go_by_one_measurement_of_its_model(questions: list[dict[str, Any]]) -> None:
    for compressor in ("none", "topk", "int8"):
        calibrated(compose(["topo=wan1g", "workers=8", f"compressor={compressor}"]))
    first, *later = [question["model"] for question in questions]
    assert first is None
    assert [Profile.from_json(model) for model in later] == [PROFILE, PROFILE]
    questions.clear()
    calibrated(compose(["topo=wan1g", "workers=8", "strategy=local_sgd"]))
    assert questions[0]["model"] is None, "another strategy may compute otherwise"


def test_another_device_is_not(questions: list[dict[str, Any]]) -> None:
    calibrated(SPEC)
    calibrated(compose(["topo=wan1g", "workers=8", "device=paced"]))
    assert [question["cpu"] is None for question in questions] == [True, False]


def test_buckets_by_times_are_those_of_their_device_and_dilation(questions: list[dict[str, Any]]) -> None:
    """The second question of each is of the dilation that the first led to."""
    for device in ("native", "paced"):
        spec = compose(["topo=wan1g", "workers=8", "strategy.fusion=mg_wfbp", f"device={device}"])
        chosen, _ = calibrated(spec)
        asked = [question["spec"]["dilation"] for question in questions[-2:]]
        assert asked == [1.0, chosen.dilation] and chosen.dilation > 1
    assert [question["cpu"] is None for question in questions] == [True] * 4
    calibrated(dataclasses.replace(chosen, auto_dilation=False))
    assert questions[-1]["cpu"] is not None


def test_a_plan_that_asks_for_a_slower_run_is_made_again_for_it(
    questions: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Until none does, or five were made."""

    def asking(most_s: float) -> Callable[..., tuple[Profile, Profile]]:
        def planned(spec: RunSpec, cpu: Profile, device: Profile) -> tuple[Profile, Profile]:
            cpu_step_s = min(0.15 + 0.03 * spec.dilation, most_s)
            return dataclasses.replace(cpu, cpu_step_s=cpu_step_s, factored=(LAYER,)), device

        return planned

    monkeypatch.setattr(calibration, "planned", asking(0.25))
    settled, found = calibrated(SPEC)
    assert found is not None and found.cpu.cpu_step_s == 0.25
    assert calibration.choose(SPEC, found.cpu, found.device, calibration.usable_cores()) == settled.dilation
    assert 2 < len(questions) < 6
    questions.clear()
    monkeypatch.setattr(calibration, "planned", asking(9.9))
    calibrated(SPEC)
    assert len(questions) == 6


def test_auto_is_resolved_and_a_given_dilation_stays(questions: list[dict[str, Any]]) -> None:
    assert SPEC.auto_dilation
    chosen, _ = calibrated(SPEC)
    assert chosen.dilation > 1
    assert chosen.auto_dilation
    assert chosen.hash == SPEC.hash, "what was chosen is no part of what was asked"
    given, _ = calibrated(dataclasses.replace(SPEC, auto_dilation=False, dilation=1.0))
    assert given.dilation == 1.0


@pytest.mark.parametrize(("devices", "dilation"), [(1, 10.0), (2, 5.0), (3, 3.75), (8, 1.0)])
def test_where_ranks_share_devices_the_guess_is_how_many_share_one(
    questions: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch, devices: int, dilation: float
) -> None:
    monkeypatch.setattr(calibration, "driver_of", lambda _: SimpleNamespace(devices=range(devices)))
    words = ["topo=wan1g", "topo.rtt=20 ms", "workers=8", "accelerator=cuda"]
    chosen, times = calibrated(compose(words))
    assert (chosen.dilation, times) == (dilation, None) and not questions, "its steps are measured as it trains"
    given, times = calibrated(compose([*words, "dilation=2", "device=paced", "device.step_s=0.1"]))
    assert given.dilation == 2.0 and times is not None and len(questions) == 1


def test_other_programs_are_not_measured(questions: list[dict[str, Any]]) -> None:
    by_hand = compose(["topo=wan1g", "workload=hand"])
    assert not by_hand.auto_dilation
    assert calibrated(by_hand) == (by_hand, None)
    assert questions == []
