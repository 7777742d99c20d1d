"""A server that is killed in mid-run and started again: its clients wait for it, and nothing else comes of it."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import pytest

from testbed.core.spec.run_spec import RunSpec
from tests.distributed.harness import Outcome, Workers, make_spec, run

LOCAL_STEPS, ROUNDS, WORKERS = 2, 8, 3
FIXED = {"_target_": "testbed.worker.methods.parameter_server.bounds.baselines.Fixed", "alpha": 0.1}
CASES: dict[str, dict[str, Any]] = {
    "raw": {"strategy_params": {"uplink": {"payload": "grad"}}},
    "sz3": {"compressor": "sz3", "strategy_params": {"uplink": {"feedback": True}, "bound": FIXED}},
}
DEATHS = [2 * LOCAL_STEPS + 1, 5 * LOCAL_STEPS]
"""Steps of rank 0, once told: the model of a round is under way, or a round is over and the next about to begin."""


def _spec(case: str) -> RunSpec:
    given = CASES[case]
    params = {"local_steps": LOCAL_STEPS, "checkpoint": True, **given["strategy_params"]}
    return make_spec(
        "parameter_server",
        given.get("compressor", "none"),
        WORKERS,
        steps=LOCAL_STEPS * ROUNDS,
        evaluate_every=LOCAL_STEPS,
        strategy_params=params,
    )


@pytest.mark.parametrize("case", CASES)
def test_one_that_is_killed_and_started_again_changes_no_bit(case: str, tmp_path: Path) -> None:
    outcomes: list[Outcome] = []
    for deaths in ([], list(DEATHS)):

        def on_event(event: dict[str, Any], workers: Workers, deaths: list[int] = deaths) -> int | None:
            if event["event"] == "step" and event["rank"] == 0 and event["step"] in deaths:
                deaths.remove(event["step"])
                workers[0].send_signal(signal.SIGKILL)
                return 0
            return None

        folder = tmp_path / str(len(outcomes))
        folder.mkdir()
        outcomes.append(run(_spec(case), folder, on_event=on_event, stops={0: set(deaths)}))
        assert not deaths
    whole, broken = outcomes

    assert broken.status == dict.fromkeys(range(WORKERS), 0), broken.logs
    assert not broken.of("fault") and not broken.of("leaving")
    assert len(broken.of("start", 0)) == 1 + len(DEATHS)
    assert [event["parameters_crc32"] for event in broken.of("done")] == [
        event["parameters_crc32"] for event in whole.of("done")
    ]
    for rank in range(1, WORKERS):
        assert broken.losses(rank) == whole.losses(rank), "nobody takes a step twice"
    made, wanted = _evaluated(broken), _evaluated(whole)
    assert made.items() <= wanted.items(), "some are told twice, and all are the same"
    # those that still waited when it was killed are lost, but that of the step from which it goes on
    assert {step for step in wanted if step >= DEATHS[-1]} <= made.keys()
    noted = {note["round"]: note["train_loss"] for note in broken.of("round")}
    assert noted == {note["round"]: note["train_loss"] for note in whole.of("round")}
    assert all(note["clients"] == WORKERS - 1 and not note["left"] for note in broken.of("round"))


def _evaluated(outcome: Outcome) -> dict[int, float]:
    return {event["step"]: event["value"] for event in outcome.of("evaluation")}
