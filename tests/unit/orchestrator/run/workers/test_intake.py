"""What workers say is bounded in time, number and size; who says too much waits, and is named."""

from __future__ import annotations

import json
import queue
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from testbed.core.record.events.run import PHASES
from testbed.core.record.telemetry import Channel
from testbed.orchestrator.config.config import compose
from testbed.orchestrator.observation.verdict.judge import Judge
from testbed.orchestrator.run.workers import intake as module
from testbed.orchestrator.run.workers.intake import BURST, MAX_BYTES, MESSAGES_S, Inbox, Intake
from tests.unit.orchestrator.launched import Launched
from tests.waiting import HANG_S, in_background, joined

STEP: dict[str, Any] = {
    "event": "step",
    "t_s": 1.5,
    "step": 3,
    "loss": 0.1,
    "step_s": 0.4,
    "phase_s": dict.fromkeys(PHASES, 0.1),
    "payload_bytes": 100,
    "samples": 32,
    "cpu_s": 0.01,
    "late_s": 0.001,
    "late_device_s": 0.0,
    "behind_s": 0.0,
    "queued_s": 0.002,
}


class Clock:
    """Time that passes by sleeping alone."""

    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def intake(clock: Clock) -> Intake:
    return Intake(0, "oregon-0", 10, clock, clock.sleep)


def test_a_message_passes_at_once(intake: Intake, clock: Clock) -> None:
    assert list(intake.taken(STEP, 300, 2.0)) == [{**STEP, "rank": 0}]
    assert clock.now_s == 0


@pytest.mark.parametrize("t_s", [-1e300, -2.0, 3.5, 1e300])
def test_a_moment_before_the_run_or_to_come_is_refused(intake: Intake, t_s: float) -> None:
    with pytest.raises(ValueError, match=r"'step' with t_s=.*between 0"):
        list(intake.taken({**STEP, "t_s": t_s}, 300, 2.0))


@pytest.mark.parametrize("step", [11, 2**53])
def test_a_step_after_the_last_is_refused(intake: Intake, step: int) -> None:
    with pytest.raises(ValueError, match="at most 10, the last step"):
        list(intake.taken({**STEP, "step": step}, 300, 2.0))


@pytest.mark.parametrize(
    "line",
    [
        '{"event": "step", "samples": 1' + "0" * 400 + "}",
        '{"event": "step", "samples": 1' + "0" * 5000 + "}",
        '{"event": "step", "loss": NaN}',
        '{"event": "step", "loss": -Infinity}',
        '{"event": "step", "loss": 1e999}',
        '{"event": "note", "kind": "a", "a": {"b": [NaN]}}',
        '{"event": "note", "kind": "a", "a": "\\ud800"}',
        '{"event": "note", "kind": "a", "\\udfff": 1}',
        '{"event": ' + "[" * 50_000,
        '{"event": "step"',
        "\x00",
    ],
)
def test_what_no_json_of_a_run_holds_is_refused(line: str) -> None:
    near, far = socket.socketpair()
    with near, far:
        far.sendall(line.encode() + b"\n")
        with pytest.raises(ValueError, match="no JSON of a run"):
            Channel(near).receive()


@pytest.mark.parametrize("count", [2**53 + 1, 2**63 - 1])
def test_a_count_that_no_float_holds_is_refused(intake: Intake, count: int) -> None:
    with pytest.raises(ValueError, match=r"samples=.*at most 2\^53"):
        list(intake.taken({**STEP, "samples": count}, 300, 2.0))


def flood(intake: Intake, number: int, size_bytes: int = 100) -> Iterator[dict[str, Any]]:
    for _ in range(number):
        yield from intake.taken(STEP, size_bytes, 2.0)


def test_a_flood_waits_and_is_told(intake: Intake, clock: Clock) -> None:
    told = [one for one in flood(intake, BURST + 4000) if one["event"] == "held_back"]
    assert clock.now_s == pytest.approx(4000 / MESSAGES_S)
    assert 3 <= len(told) <= 14, "each time that the wait has doubled"
    assert (told[-1]["rank"], told[-1]["node"]) == (0, "oregon-0") and told[-1]["held_s"] > 1
    judge = Judge(compose([]))
    for event in told:
        judge.add({"t_s": 1.0, **event})
    verdict, reasons = judge.verdict()
    assert verdict != "valid" and any("worker 0 on oregon-0 sent more" in reason for reason in reasons)


def test_a_wait_that_changes_nothing_is_not_told(intake: Intake, clock: Clock) -> None:
    told = [one for one in flood(intake, BURST + 20) if one["event"] == "held_back"]
    assert 0 < clock.now_s < module.MIN_HELD_S and not told


def test_large_messages_wait_too(intake: Intake, clock: Clock) -> None:
    assert len(list(flood(intake, 100, 1_000_000))) > 100
    assert clock.now_s == pytest.approx((100e6 - module.BURST_BYTES) / module.BYTES_S)


def test_nobody_says_more_than_a_record_holds(intake: Intake) -> None:
    with pytest.raises(ValueError, match="most that a worker may in one run"):
        list(flood(intake, 3, MAX_BYTES // 2))


def test_metrics_without_end_are_refused(intake: Intake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_NAMES", 3)
    said = {"event": "evaluation", "t_s": 1.0, "step": 1, "value": 0.5}
    for name in "abc":
        list(intake.taken({**said, "name": name}, 100, 2.0))
    with pytest.raises(ValueError, match="more than 3 metrics"):
        list(intake.taken({**said, "name": "d"}, 100, 2.0))


def test_an_inbox_that_is_full_lets_its_senders_wait() -> None:
    inbox: Inbox[int] = Inbox(most_bytes=100)
    inbox.put(0, 1000)  # one that is too large for itself passes
    sender = in_background(lambda: [inbox.put(number, 60) for number in (1, 2)])
    assert [inbox.get(HANG_S) for _ in range(3)] == [0, 1, 2]
    joined(sender)
    with pytest.raises(queue.Empty):
        inbox.get(0)


@pytest.mark.parametrize("error", [OverflowError("int too large"), RecursionError(), KeyError("rank")])
def test_whatever_goes_wrong_in_hearing_a_worker_is_a_fault_that_names_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def broken(*_: object) -> None:
        raise error

    workers = Launched(tmp_path, begun=False)
    workers.conversations.channels.clear()
    monkeypatch.setattr(workers.conversations, "_hear", broken)
    near, far = socket.socketpair()
    with near, far:
        threading.Thread(
            target=workers.conversations.listen, args=(workers.nodes[1], Channel(near)), daemon=True
        ).start()
        node, _, message = workers.conversations.inbox.get(HANG_S)
    assert node == workers.nodes[1] and message["event"] == "fault"
    assert type(error).__name__ in json.dumps(message)
