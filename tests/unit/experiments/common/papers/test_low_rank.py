"""What runs of Pufferfish and Cuttlefish are compared by, and what differs between the runs of a case."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

import pytest

from experiments.common.papers.declaration import Trial
from experiments.common.papers.low_rank import STEPS, accuracy_percent, whole_run_s
from experiments.common.papers.pufferfish import step_s
from experiments.reproductions.cuttlefish.declaration import SYSTEM as CUTTLEFISH
from experiments.reproductions.pufferfish.declaration import ARMS, MODELS, SCALED_WORKERS, WARM_UP
from experiments.reproductions.pufferfish.declaration import SYSTEM as PUFFERFISH
from testbed.core.record.run_directory import RunDir, write_json


def _run(folder: Path, accuracies: Sequence[float]) -> RunDir:
    run = RunDir.create(folder, "made")
    events = [{"event": "step", "t_s": 1.0}]
    events += [{"event": "evaluation", "t_s": float(at), "value": value} for at, value in enumerate(accuracies)]
    run.events.write_text("".join(f"{json.dumps(event)}\n" for event in events))
    write_json(run.summary, {"time_s": 61.5})
    return run


def test_a_run_is_as_accurate_as_its_last_five_evaluations_on_average(tmp_path: Path) -> None:
    run = _run(tmp_path, [0.1, 0.2, 0.86, 0.87, 0.85, 0.88, 0.89])
    assert accuracy_percent(run) == pytest.approx(87.0)
    assert whole_run_s(run) == 61.5


def test_of_fewer_evaluations_nothing_is_said(tmp_path: Path) -> None:
    assert accuracy_percent(_run(tmp_path, [0.9] * 4)) is None


def _shared(trial: Trial) -> tuple[str, ...]:
    given = ("seed=", "steps=", "transform", "compressor", "workload.model=", "device.step_s=")
    return tuple(word for word in trial.overrides if not word.startswith(given))


def test_runs_of_a_case_differ_in_their_arm_alone() -> None:
    for system in (PUFFERFISH, CUTTLEFISH):
        seen: dict[tuple[str, str], set[tuple[str, ...]]] = defaultdict(set)
        for trial in system.trials(True):
            seen[trial.kind, trial.case].add(_shared(trial))
        assert all(len(each) == 1 for each in seen.values())
    assert {ARMS[arm][0] for arm in ("Pufferfish", "full rank", "PowerSGD")} == {STEPS}
    assert ARMS["full rank"][1] == ()
    assert 0 < WARM_UP < STEPS


def test_arms_that_are_longer_say_so() -> None:
    for trial in PUFFERFISH.trials(True):
        if trial.kind == "emulated":
            (steps,) = (word.removeprefix("steps=") for word in trial.overrides if word.startswith("steps="))
            assert (f"{steps} steps" in trial.arm) is (int(steps) != STEPS)


def test_no_rank_and_no_step_is_given_to_cuttlefish_whose_full_runs_are_also_pufferfishs() -> None:
    trials = CUTTLEFISH.trials(True)
    given = {word for trial in trials for word in trial.overrides if word.startswith("transform")}
    assert given == {"transform=cuttlefish", "transform.rewarm_steps=10"}
    full = {trial.overrides for trial in PUFFERFISH.trials(True) if trial.arm == "full rank"}
    assert {trial.overrides for trial in trials if trial.arm == "full rank"} <= full


def test_every_worker_has_the_same_batch_however_many_there_are() -> None:
    simulated = [trial for trial in PUFFERFISH.trials(True) if trial.kind == "simulated"]
    assert len(simulated) == 2 * len(MODELS) * len(SCALED_WORKERS)
    assert {word for trial in simulated for word in trial.overrides if word.startswith("batch_size=")} == {
        "batch_size=64"
    }
    assert step_s("resnet50") == pytest.approx(64 / 253.1)
    assert step_s("resnet50-pufferfish") == pytest.approx(0.864 * step_s("resnet50"), rel=1e-3)
