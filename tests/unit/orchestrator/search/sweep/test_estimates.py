"""How long runs take: as runs of other seeds and code did; what is predicted is tested where it is predicted."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path

import pytest

from testbed.core.errors import InputError, RunError
from testbed.core.spec.run_spec import RunSpec
from testbed.orchestrator.config.grammar.offers import Offer, Refused
from testbed.orchestrator.search.plan import simulated_run
from testbed.orchestrator.search.sweep import estimates
from testbed.orchestrator.search.sweep.estimates import (
    EARLIER,
    PREDICTED,
    ROUGHLY,
    UNKNOWN,
    Estimate,
    RunsRefused,
    spoken,
)
from testbed.orchestrator.search.sweep.specs import RunRequest
from testbed.orchestrator.terminal.run_state import SEAL_S, SET_UP_S, WORKER_SET_UP_S
from tests.unit.orchestrator.made_runs import asked_of, grid, make_run
from tests.unit.orchestrator.run.dilation.test_calibration import PROFILE


@pytest.fixture(scope="module")
def asked() -> list[RunRequest]:
    return asked_of(grid("compressor=none,topk", "seed=range(2)"))


@pytest.fixture
def calibrated(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Compressors of the specs whose steps were measured; a step is predicted to last 0.5 s."""
    found: list[str] = []

    def calibrate(spec: RunSpec, tell: Callable[[str], None], _: object) -> object:
        tell("measuring")
        found.append(spec.compressor.name)
        return dataclasses.replace(spec, dilation=2.0), estimates_calibration

    from testbed.orchestrator.run.dilation.calibration import Calibration

    estimates_calibration = Calibration(PROFILE, PROFILE)
    monkeypatch.setattr(estimates, "calibrate", calibrate)
    monkeypatch.setattr(simulated_run, "ask", lambda question: {"step_s": 0.5})
    return found


def told(asked: list[RunRequest], runs: Path) -> list[Estimate]:
    found = estimates.estimates(asked, runs)
    return [found[one.spec.hash] for one in asked]


def test_runs_of_other_seeds_and_other_code_tell(asked: list[RunRequest], runs: Path, calibrated: list[str]) -> None:
    for number, wall_s in enumerate((10.0, 30.0, 20.0)):
        spec = dataclasses.replace(asked[0].spec, seed=10 + number)
        make_run(runs, spec, code_hash="0" * 16, wall_s=wall_s, time_s=2.0, now_s=1.7e9 + number)
    make_run(runs, asked[0].spec, status="failed", wall_s=99.0)
    found = told(asked, runs)
    # a prediction has beside it what the earlier ones took beside three times two seconds of steps: 20 - 6
    assert found == [Estimate(20.0, EARLIER), Estimate(4 * 0.5 * 2 + 14.0, PREDICTED)] * 2
    assert calibrated == ["topk"], "once for all seeds"


def test_without_earlier_runs_set_up_and_end_are_roughly_known(
    asked: list[RunRequest], runs: Path, calibrated: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    beside_s = SET_UP_S + 2 * WORKER_SET_UP_S + SEAL_S
    assert told(asked, runs) == [Estimate(4.0 + beside_s, PREDICTED)] * 4
    assert calibrated == ["none", "topk"]
    lines = [line.partition("s  ")[2] for line in capsys.readouterr().err.splitlines()]
    assert [line.partition(", ")[0].partition(":")[0] for line in lines] == ["predicted 0/2", "predicted 1/2"]
    assert lines[0].endswith(": compressor=none seed=0: measuring")
    assert lines[1].endswith(": compressor=topk seed=0: measuring")


def test_what_cannot_be_made_is_told_of_all(
    asked: list[RunRequest], runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(spec: RunSpec, *_: object) -> object:
        raise InputError(f"dilation: none does for {spec.compressor.name}")

    monkeypatch.setattr(estimates, "calibrate", refuse)
    with pytest.raises(InputError) as caught:
        told(asked, runs)
    assert [fault.rpartition(" ")[2] for fault in caught.value.faults] == ["none", "topk"]


def test_every_refused_run_offers_what_would_do(
    asked: list[RunRequest], runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    offer = Offer({"device": "paced", "device.step_s": "0.5"}, "slower")

    def refuse(spec: RunSpec, *_: object) -> object:
        raise Refused("dilation: none does", [offer] if spec.compressor.name == "topk" else [])

    monkeypatch.setattr(estimates, "calibrate", refuse)
    with pytest.raises(RunsRefused) as caught:
        told(asked, runs)
    assert caught.value.offers == ((), (offer,))
    assert caught.value.why == "compressor=none seed=0: dilation: none does"
    assert caught.value.faults[-1] == "compressor=topk seed=0:   device=paced device.step_s=0.5: slower"


def test_what_the_simulator_does_not_know_is_roughly_known_by_the_cycle_of_its_exchanges(
    asked: list[RunRequest], runs: Path, calibrated: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(question: object) -> object:
        raise InputError("not simulated")

    monkeypatch.setattr(simulated_run, "ask", refuse)
    beside_s = SET_UP_S + 2 * WORKER_SET_UP_S + SEAL_S
    (found,) = {one.seconds for one in told(asked, runs) if one.source == ROUGHLY}
    assert found is not None and found - beside_s > 2.0 * 4 * PROFILE.step_s > 0


def test_steps_are_those_of_the_request_and_without_any_nothing_is_known(
    asked: list[RunRequest], runs: Path, calibrated: list[str]
) -> None:
    longer, none = (dataclasses.replace(asked[0], steps=steps) for steps in (400, None))
    beside_s = SET_UP_S + 2 * WORKER_SET_UP_S + SEAL_S
    assert told([longer], runs) == [Estimate(400 * 0.5 * 2 + beside_s, PREDICTED)]
    assert told([none], runs) == [Estimate(None, UNKNOWN)]


def test_what_fails_when_it_is_measured_is_not_known(
    asked: list[RunRequest], runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(spec: RunSpec, *_: object) -> object:
        raise RunError("calibration broke")

    monkeypatch.setattr(estimates, "calibrate", fail)
    assert told(asked, runs) == [Estimate(None, UNKNOWN)] * 4


def test_runs_times_seconds_are_spoken_with_where_they_are_from() -> None:
    found = [Estimate(20.0, EARLIER), Estimate(30.0, EARLIER), Estimate(1000.0, PREDICTED)]
    assert spoken(found) == "2 x 25 s (by earlier runs) + 1 x 1000 s (predicted) = about 18 minutes"
    assert spoken([*found[:1], Estimate(None, UNKNOWN)]) == (
        "1 x 20 s (by earlier runs) + 1 of unknown length = at least 20 s"
    )
    assert spoken([Estimate(None, UNKNOWN)] * 2) == "2 of unknown length"
    assert spoken([Estimate(8000.0, ROUGHLY)]) == "1 x 8000 s (roughly predicted) = about 2.2 hours"
