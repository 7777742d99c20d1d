"""Strategies on the measured times of an accelerator: ranks on loopback take at least the seconds that it took."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest
import torch

from testbed.core.device.profile import Profile
from testbed.core.spec.run_spec import RunSpec
from testbed.worker.device.clock import WAITING
from testbed.worker.profile.step_times import measure
from testbed.worker.training.parts import build_parts
from tests.distributed.harness import Outcome, make_spec, part, run

PLAIN = ("ddp", "torch_ddp", "dear", "lamb", "slamb", "diloco")
SECOND_ORDER = ("dkfac", "mpd_kfac", "spd_kfac", "pad_kfac", "dp_kfac")
STEPS, _CLOCK_S = 2, 1e-6


def on_h200(strategy: str, model: str = "resnet18", **strategy_params: Any) -> RunSpec:
    spec = make_spec(strategy, "none", workers=2, steps=STEPS, batch_size=64, strategy_params=strategy_params)
    workload = part("workload", "replay", {"model": model, "scale": 1000})
    return dataclasses.replace(spec, workload=workload, device=part("device", "h200"))


def profiled(spec: RunSpec) -> Profile:
    """Return the times that a run of `spec` is paced by."""
    torch.set_num_threads(1)
    return build_parts(spec).device.whole_profile(measure(spec))


def ran(spec: RunSpec, profile: Profile, folder: Path) -> Outcome:
    outcome = run(spec, folder, profile=profile)
    assert set(outcome.status.values()) == {0}, outcome.of("fault")
    return outcome


def computing_s(outcome: Outcome, rank: int) -> float:
    """Return the seconds of all phases of a rank but waiting; a phase that ends late makes the next one shorter."""
    phases = [phase for step in outcome.of("step", rank) for phase in step["phase_s"].items()]
    return sum(seconds for name, seconds in phases if name != WAITING)


@pytest.mark.parametrize("strategy", [*PLAIN, *SECOND_ORDER])
def test_every_strategy_that_takes_a_replay_has_measured_times(strategy: str) -> None:
    found = profiled(on_h200(strategy))
    assert found.forward_s == pytest.approx(4.3e-3, rel=0.02) and not found.assumed
    assert all(piece.seconds > 0 for piece in found.work)
    assert bool(found.work) == (strategy in SECOND_ORDER)


@pytest.mark.parametrize("strategy", ["spd_kfac"])
def test_ranks_take_the_measured_phases_and_their_own_work(strategy: str, tmp_path: Path) -> None:
    spec = on_h200(strategy)
    profile = profiled(spec)
    outcome = ran(spec, profile, tmp_path)
    # all ranks compute all factors
    factors_s = sum(piece.seconds for piece in profile.work if piece.kind == "factor")
    for rank in range(2):
        given_s = profile.forward_s + profile.backward_s + factors_s
        assert computing_s(outcome, rank) >= STEPS * given_s - _CLOCK_S


def test_stages_take_the_measured_phases_together(tmp_path: Path) -> None:
    spec = on_h200("hybrid", "vit-b", pp=2, cuts=[0, 4])
    profile = profiled(spec)
    outcome = ran(spec, profile, tmp_path)
    # of each step two batches of a rank
    given_s = 2 * STEPS * (profile.forward_s + profile.backward_s)
    assert sum(computing_s(outcome, rank) for rank in range(2)) >= given_s - _CLOCK_S


def test_a_plan_is_chosen_by_the_measured_times(tmp_path: Path) -> None:
    spec = on_h200("hybrid", "vit-b", plan="auto")
    (plan,) = ran(spec, profiled(spec), tmp_path).of("pipeline")
    assert plan["pp"] * plan["dp"] * plan["tp"] == 2
