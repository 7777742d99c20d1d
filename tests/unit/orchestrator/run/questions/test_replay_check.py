from __future__ import annotations

import dataclasses

import pytest

from testbed.core.device.profile import Collective, LayerTimes, Profile
from testbed.orchestrator.config.config import compose
from testbed.orchestrator.run.questions import replay_needs

SPEC = compose(["topo=wan1g", "workload=replay", "workload.model=resnet50", "device=paced", "steps=10"])
ANSWER = {"computes": False, "parameters": 25_557_032, "uses_feedback": True, "exchanges_models": False}
PROFILE = Profile(
    workload="w",
    compressor="c",
    batch_size=1,
    layers=(LayerTimes(name="a", parameters=25_557_032, forward_s=0.1, backward_s=0.2),),
    forward_s=0.1,
    backward_s=0.2,
    optimizer_s=0.0,
    collectives=(Collective(kind="all_reduce", size_bytes=102_228_128),),
)


def test_memory_is_refused_with_the_figure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replay_needs, "available_memory_bytes", lambda: 500_000_000)
    (fault,) = replay_needs.memory_faults(SPEC, ANSWER)
    assert "needs 1.005 GB of memory, this machine has 500 MB: workers=1 " in fault
    monkeypatch.setattr(replay_needs, "available_memory_bytes", lambda: 2_000_000_000)
    assert list(replay_needs.memory_faults(SPEC, ANSWER)) == []


def test_workloads_that_compute_are_not_weighed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replay_needs, "available_memory_bytes", lambda: 0)
    assert list(replay_needs.memory_faults(SPEC, {**ANSWER, "computes": True})) == []


def test_time_is_refused_with_the_figure() -> None:
    """153 MB a worker at 1 Gbit/s are 1.23 s, ten steps of it 12.3 s."""
    patient = dataclasses.replace(SPEC, max_wall_s=13.0)
    assert list(replay_needs.time_faults(patient, PROFILE, PROFILE)) == []
    (fault,) = replay_needs.time_faults(dataclasses.replace(SPEC, max_wall_s=10.0), PROFILE, PROFILE)
    assert "steps=10" in fault
    assert "steps=8 would do" in fault
