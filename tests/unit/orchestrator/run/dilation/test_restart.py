"""Which runs are made once more, slower, and what is kept of the first attempt."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any, cast

import pytest

from testbed.core.errors import RunError
from testbed.core.record.run_directory import RunDir
from testbed.core.spec.run_spec import RunSpec
from testbed.orchestrator.observation.verdict.judge import MIN_SLOWDOWN
from testbed.orchestrator.observation.verdict.lateness_rules import AIM_LATE, LATE_MARGIN, LATE_SUSPECT
from testbed.orchestrator.run.dilation import restart
from testbed.orchestrator.run.dilation.calibration import Calibration
from testbed.orchestrator.run.dilation.first_guess import most_dilation, on_grid
from testbed.orchestrator.run.dilation.restart import MAX_SLOWDOWN, put_aside, slowed
from testbed.orchestrator.run.dilation.search import UNTRIED_RATIO
from tests.unit.orchestrator.run.dilation.test_calibration import SPEC

FIRST = dataclasses.replace(SPEC, dilation=2.0)
STEP = {"event": "step", "t_s": 1.0, "step": 1, "rank": 0, "step_s": 1.0, "payload_bytes": 0,
        "phase_s": {"exposed_communication": 0.5}}  # fmt: skip


def recorded(folder: Path, *events: dict[str, Any], spec: RunSpec = FIRST) -> RunDir:
    run = RunDir.create(folder, "20260101T000000Z-a-b-c-d")
    run.spec.write_text(json.dumps(spec.to_json()))
    run.events.write_text("".join(f"{json.dumps(event)}\n" for event in events))
    return run


def late_by(share: float, queued: float = 0.0, waits: float = 0.5) -> dict[str, Any]:
    return {**STEP, "late_s": share, "queued_s": queued, "phase_s": {"exposed_communication": waits}}


@pytest.mark.parametrize(
    ("event", "slowdown"),
    [
        (late_by(0.06), MIN_SLOWDOWN),
        (late_by(0.3), 0.5 / (0.2 + AIM_LATE)),
        (late_by(0.5), MAX_SLOWDOWN),
        (late_by(0.06, waits=0.93), LATE_MARGIN * 0.07 / (0.01 + LATE_SUSPECT)),
        (late_by(0.06) | {"late_device_s": 0.02}, LATE_MARGIN * 0.08 / (0.02 + LATE_SUSPECT)),
        (late_by(0.0, 0.31), 3.1),
    ],
)
def test_a_run_that_was_late_is_made_slower(tmp_path: Path, event: dict[str, Any], slowdown: float) -> None:
    again = slowed(recorded(tmp_path, event))
    assert again is not None
    spec, why = again
    assert spec.dilation == on_grid(min(MAX_SLOWDOWN, UNTRIED_RATIO * slowdown) * FIRST.dilation)
    assert spec.hash == FIRST.hash, "what is chosen is no part of what was asked"
    assert f"at {FIRST.dilation:g} it was invalid" in why


@pytest.mark.parametrize("event", [late_by(0.0), late_by(0.04)])
def test_one_that_is_valid_or_suspect_stands(tmp_path: Path, event: dict[str, Any]) -> None:
    assert slowed(recorded(tmp_path, event)) is None


def test_one_whose_cores_were_never_idle_is_made_slower(tmp_path: Path) -> None:
    host = {
        "event": "host",
        "t_s": 3.0,
        "cpu_idle_ratio": 0.0,
        "interval_s": 3.0,
        "steal_s": 0.0,
        "sampler_late_s": 0.0,
    }
    again = slowed(recorded(tmp_path, host, late_by(0.0)))
    assert again is not None
    assert again[0].dilation == on_grid(UNTRIED_RATIO * MIN_SLOWDOWN * FIRST.dilation)


@pytest.mark.parametrize(("late_s", "slowdown"), [(2.1e-3, 1.05), (3e-3, 1.5), (9e-3, 4.0)])
def test_delay_lines_say_how_much_slower(tmp_path: Path, late_s: float, slowdown: float) -> None:
    link = SPEC.topology.wan_links[0]
    line = {"event": "delay_line", "name": link.name, "from": link.a, "packets": 9, "drops": 0}
    lines = [{**line, "t_s": t_s, "late_p99_s": late_s if t_s < 3 else 0.0} for t_s in (1.0, 2.0, 3.0, 4.0, 5.0)]
    again = slowed(recorded(tmp_path, *lines))
    assert again is not None
    assert again[0].dilation == min(
        on_grid(min(MAX_SLOWDOWN, UNTRIED_RATIO * slowdown) * FIRST.dilation), most_dilation(SPEC)
    )


@pytest.mark.parametrize("words", [{"auto_dilation": False}, {"guessed_dilation": True}])
def test_a_dilation_that_was_given_or_guessed_is_kept(tmp_path: Path, words: dict[str, bool]) -> None:
    given = dataclasses.replace(FIRST, **words)
    assert slowed(recorded(tmp_path, late_by(0.3), spec=given)) is None


def test_links_that_bear_no_more_get_no_second_attempt(tmp_path: Path) -> None:
    slowest = dataclasses.replace(FIRST, dilation=most_dilation(SPEC))
    assert slowed(recorded(tmp_path, late_by(0.3), spec=slowest)) is None


def test_another_cause_is_no_reason(tmp_path: Path) -> None:
    sums = [{"event": "done", "t_s": 1.0, "rank": rank, "parameters_crc32": rank} for rank in (0, 1)]
    assert slowed(recorded(tmp_path, late_by(0.0), *sums)) is None


def test_where_it_cannot_be_made_ready_the_first_attempt_stands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object) -> Calibration:
        raise RunError("the worker was killed")

    run = recorded(tmp_path, late_by(0.3))
    told: list[str] = []
    monkeypatch.setattr(restart, "calibrated_at", fails)
    found = cast(Calibration, object())
    assert restart.prepare_again(run, found, told.append) is None
    assert told == ["not begun again: the worker was killed"]
    assert run.events.exists() and not run.first_attempt.exists()


def test_the_first_attempt_is_kept_and_the_second_begins_with_nothing(tmp_path: Path) -> None:
    run = recorded(tmp_path, late_by(0.3))
    run.log("w0").write_text("words\n")
    put_aside(run)
    assert not run.events.exists()
    assert list(run.logs.iterdir()) == []
    assert (run.first_attempt / "events.jsonl").exists()
    assert (run.first_attempt / "logs" / "w0.log").read_text() == "words\n"
