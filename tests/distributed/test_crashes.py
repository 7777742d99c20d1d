"""Clients of a parameter server that are killed, put out or started again: the others go on; without it nobody does."""

from __future__ import annotations

import dataclasses
import signal
from pathlib import Path
from typing import Any

from testbed.core.errors import EXIT_LEFT
from testbed.core.spec.run_spec import Part
from tests.distributed.crashing import DEATH, DIES, PAUSE, STALE, WAITS, YESTERDAY
from tests.distributed.harness import Workers, make_spec, run

LOCAL_STEPS, ROUNDS = 2, 6
BACK = PAUSE + 1
"""The first round in which the one that was killed is there again."""


def test_killed_in_mid_upload_and_back_put_out_for_yesterdays_round_and_the_rest_goes_on(tmp_path: Path) -> None:
    spec = make_spec("parameter_server", "sz3", 4, steps=LOCAL_STEPS * ROUNDS)
    params = {**spec.strategy.params, "local_steps": LOCAL_STEPS}
    crashing = Part("crashing", "tests.distributed.crashing.Crashing", params)

    def on_event(event: dict[str, Any], workers: Workers) -> int | None:
        # The round in which it is waited for has begun, and nobody is let in before the next, however soon it comes.
        is_begun = event["event"] == "step" and event["rank"] == WAITS and event["step"] == LOCAL_STEPS * PAUSE + 1
        return DIES if is_begun else None

    outcome = run(dataclasses.replace(spec, strategy=crashing), tmp_path, on_event=on_event)

    rounds = outcome.of("round")
    assert [note["clients"] for note in rounds] == [3, *[1] * (BACK - DEATH), *[2] * (ROUNDS - BACK)]
    gone, out = str(DIES - 1), str(STALE - 1)
    assert set(rounds[DEATH]["left"]) == {gone, out} and set(rounds[BACK]["left"]) == {out}
    assert "it closed the connection" in rounds[DEATH]["left"][gone]
    assert rounds[-1]["left"][out].startswith("refused (round)")

    assert outcome.status == {0: 0, WAITS: 0, DIES: 0, STALE: EXIT_LEFT}, outcome.logs
    assert not outcome.of("fault")
    (said,) = outcome.of("leaving")
    assert said["rank"] == STALE
    assert f"is of round {YESTERDAY - 1}; this is round {YESTERDAY}" in said["message"]

    before, after = range(1, LOCAL_STEPS * (DEATH + 1)), range(LOCAL_STEPS * BACK + 1, LOCAL_STEPS * ROUNDS + 1)
    assert [event["step"] for event in outcome.of("step", DIES)] == [*before, *after]
    assert outcome.of("start", DIES)[1]["late_s"] < outcome.of("start", DIES)[1]["t_s"]
    done = outcome.of("done")
    assert {event["rank"] for event in done} == {0, WAITS, DIES}
    assert len({event["parameters_crc32"] for event in done}) == 1
    assert outcome.losses(DIES)[-1] < 0.9 * outcome.losses(DIES)[0], "it goes on with the model of the others"


def test_without_its_server_every_client_leaves(tmp_path: Path) -> None:
    spec = make_spec("parameter_server", workers=2, steps=2000, strategy_params={"local_steps": LOCAL_STEPS})

    def on_event(event: dict[str, Any], workers: Workers) -> None:
        if event["event"] == "step" and event["rank"] == 0 and event["step"] == 5:
            workers[0].send_signal(signal.SIGKILL)

    outcome = run(spec, tmp_path, on_event=on_event, stops={0: {5}})
    assert outcome.status == {0: -signal.SIGKILL, 1: EXIT_LEFT}
    (said,) = outcome.of("leaving")
    assert "this client is out: connection of" in said["message"]
