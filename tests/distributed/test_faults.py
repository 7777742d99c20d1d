"""What goes wrong in a run ends in a named error on every rank, never in a hang."""

from __future__ import annotations

import signal
import time
from pathlib import Path
from typing import Any

import pytest

from testbed.core.errors import EXIT_FAILED
from tests.distributed.harness import HANG_S, STRATEGIES, OnEvent, Workers, make_spec, run

OUTLIVING = ("parameter_server", "federated", "fedbuff")
"""Strategies whose server goes on without a worker."""
ODD: dict[str, dict[str, Any]] = {"hybrid": {"pp": 1}}
"""What has a strategy run on three ranks, where its defaults ask for another number."""


def _at_step(step: int, signal_number: int, rank: int, at_s: list[float]) -> OnEvent:
    """Notes when."""

    def on_event(event: dict[str, Any], workers: Workers) -> None:
        if event["event"] == "step" and event["rank"] == rank and event["step"] == step:
            workers[rank].send_signal(signal_number)
            at_s.append(time.monotonic())

    return on_event


@pytest.mark.parametrize(
    ("strategy", "params"),
    [
        *(
            pytest.param(one, ODD.get(one, {}), id=one, marks=pytest.mark.tier("test") if one == "ddp" else ())
            for one in STRATEGIES
            if one not in OUTLIVING
        ),
        pytest.param("dear", {"collective": "hierarchical"}, id="dear over regions"),
    ],
)
def test_a_killed_rank_is_an_error_that_names_where(strategy: str, params: dict[str, Any], tmp_path: Path) -> None:
    spec = make_spec(strategy, workers=3, steps=2000, strategy_params=params)
    killed_s: list[float] = []
    outcome = run(spec, tmp_path, on_event=_at_step(5, signal.SIGKILL, 1, killed_s), stops={1: {5}})
    assert killed_s, f"rank 1 came to no step 5: {outcome.of('fault')}"
    assert time.monotonic() - killed_s[0] < spec.timeout_s
    assert outcome.status == {0: EXIT_FAILED, 1: -signal.SIGKILL, 2: EXIT_FAILED}
    faults = {fault["rank"]: fault["message"] for fault in outcome.of("fault")}
    assert set(faults) == {0, 2}
    for rank, message in faults.items():
        assert message.startswith(f"rank {rank}: ")
        assert "failed in step " in message
        assert "Traceback" in outcome.logs[rank]


def test_a_rank_that_stops_answering_runs_into_the_timeout(tmp_path: Path) -> None:
    # wall; it is also what ranks may take to meet, on a machine that others use too
    spec = make_spec(workers=2, steps=2000, timeout_s=30.0)

    def on_event(event: dict[str, Any], workers: Workers) -> None:
        if event["event"] == "step" and event["rank"] == 1 and event["step"] == 5:
            workers[1].send_signal(signal.SIGSTOP)
        if event["event"] == "fault":
            workers[1].send_signal(signal.SIGKILL)

    outcome = run(spec, tmp_path, on_event=on_event, stops={1: {5}})
    assert outcome.status[0] == EXIT_FAILED
    (fault,) = outcome.of("fault")
    assert fault["message"].startswith("rank 0: all_reduce of ")
    assert "timeout 30 s wall" in fault["message"]


def test_a_rank_that_never_comes_is_an_error(tmp_path: Path) -> None:
    spec = make_spec(workers=2, timeout_s=5.0)
    outcome = run(spec, tmp_path, absent={1})
    assert outcome.status == {0: EXIT_FAILED}
    assert "rendezvous at 127.0.0.1:" in outcome.of("fault")[0]["message"]


def test_a_worker_ends_when_its_orchestrator_is_gone(tmp_path: Path) -> None:
    def on_event(event: dict[str, Any], workers: Workers) -> None:
        if event["event"] == "step" and event["step"] == 5:
            raise ConnectionAbortedError

    with pytest.raises(ConnectionAbortedError):
        run(make_spec(workers=1, steps=100_000), tmp_path, on_event=on_event, grace_s=HANG_S)
    assert "the orchestrator is gone" in (tmp_path / "rank0.log").read_text()


def test_a_training_that_diverges_says_so(tmp_path: Path) -> None:
    spec = make_spec(workers=2, steps=200, workload="digits", workload_params={"learning_rate": 9.0, "momentum": 0.99})
    outcome = run(spec, tmp_path)
    assert EXIT_FAILED in outcome.status.values()
    assert any("the training has diverged" in fault["message"] for fault in outcome.of("fault"))
